"""Open files of a binlog folder or a history store only if they are regular files.

Opening a FIFO would block, and opening a device can have effects.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from beanstalkd_py.symlinks import check_hard_link, open_linked, parent_of

NOT_REGULAR = errno.EMEDIUMTYPE
"""The errno of the refusal, as in the core (BS_NOT_REGULAR of csrc/base/file_io.h)."""
WHY = "it is not a regular file"

_BLOCK = 512
_MARGIN = 4096
"""Bytes kept behind the last data, because the zeros at the end of an entry can be a hole."""


def open_regular(path: str | Path, flags: int, mode: int = 0o600) -> int:
    """Open a file; a symbolic link to it is followed only for reading, and only as in symlinks.py.

    Raises OSError, NOT_REGULAR and symlinks.UNTRUSTED among others.
    """
    flags |= os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    if flags & os.O_ACCMODE == os.O_RDONLY:
        _check(path, os.stat(path))  # noqa: PTH116 - before it is opened, see _open
        fd = open_linked(Path(path), flags)
    else:
        with parent_of(Path(path)) as at:
            fd = _open(Path(path).name, flags | os.O_NOFOLLOW, mode, at)
            try:
                check_hard_link(at, fd)
            except OSError:
                os.close(fd)
                raise
    try:
        _check(path, os.fstat(fd))
    except OSError:
        os.close(fd)
        raise
    return fd


def read_regular(path: Path) -> bytes:
    """Read a small file, up to a hole at its end. Raises OSError."""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        return file.read(data_size(file.fileno()))


def data_size(fd: int) -> int:
    """Return the size of a file without a hole at its end, which may exceed any memory."""
    status = os.fstat(fd)
    if status.st_blocks * _BLOCK >= status.st_size:
        return status.st_size
    end = 0
    try:
        while end < status.st_size:
            end = os.lseek(fd, os.lseek(fd, end, os.SEEK_DATA), os.SEEK_HOLE)
    except OSError as error:
        if error.errno != errno.ENXIO:  # there is data behind `end`
            return status.st_size
    return min(status.st_size, end + _MARGIN)


def _open(path: str | Path, flags: int, mode: int, at: int) -> int:
    """Check the type first, because opening a device can have effects."""
    try:
        _check(path, os.stat(path, dir_fd=at, follow_symlinks=False))
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    return os.open(path, flags, mode, dir_fd=at)


def _check(path: str | Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(NOT_REGULAR, WHY, str(path))
