"""Open files of a binlog folder or a history store only if they are regular files.

Opening a FIFO would block, and opening a device can have effects.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from beanstalkd_py.symlinks import check_hard_link, closed_on_error, open_linked, parent_of

NOT_REGULAR = errno.EMEDIUMTYPE
"""The errno for any other file, as in the core (BS_NOT_REGULAR of csrc/base/file_io.h)."""
NOT_REGULAR_TEXT = "it is not a regular file"

_FLAGS = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_BLOCK = 512
_MARGIN = 4096
"""Bytes kept after the last data, because the zeros at the end of an entry can be a hole."""


def open_regular(path: str | Path) -> int:
    """Open a file for reading; follow a symbolic link only by the rule of symlinks.py.

    Raises OSError, NOT_REGULAR and symlinks.UNTRUSTED among others.
    """
    _check(path, os.stat(path))  # noqa: PTH116 - before it is opened
    fd = open_linked(Path(path), _FLAGS)
    with closed_on_error(fd):
        _check(path, os.fstat(fd))
    return fd


def open_or_create(path: Path) -> int:
    """Open a file for reading and writing, never through a link. Raises OSError."""
    with parent_of(path) as at:
        with contextlib.suppress(FileNotFoundError):
            _check(path, os.stat(path.name, dir_fd=at, follow_symlinks=False))
        flags = _FLAGS | os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        fd = os.open(path.name, flags, 0o600, dir_fd=at)
        with closed_on_error(fd):
            check_hard_link(at, fd)
            _check(path, os.fstat(fd))
    return fd


def read_regular(path: Path) -> bytes:
    """Read a small file, up to a hole at its end. Raises OSError."""
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read(data_size(file.fileno()))


def data_size(fd: int) -> int:
    """Return the size of a file without a hole at its end, which may be larger than memory."""
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


def _check(path: str | Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(NOT_REGULAR, NOT_REGULAR_TEXT, str(path))
