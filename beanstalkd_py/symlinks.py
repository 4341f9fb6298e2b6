"""Opens, creates and removes files without following symbolic links of other users.

Root must not leave a user's folder, even if that user replaces a folder by a link at the same time.
Therefore these functions open each folder of a path relative to the previous one. They follow a
link to a folder, or to a file that is read, only if root or the user of this process created it.
csrc/base/folder.c does the same.

For root the rule applies to the whole path. Other users may pass a path with any links, because
they reach only files that they may access anyway: `resolved` resolves such links once. All
functions raise OSError.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

UNTRUSTED = errno.EREMCHG
"""The errno for a link of another user (BS_UNTRUSTED_LINK of csrc/base/folder.h)."""

FOREIGN = errno.EMLINK
"""The errno for a hard link that root must not write to (BS_FOREIGN_HARD_LINK of file_io.h)."""
FOREIGN_TEXT = "it is a hard link to a file of another user than the owner of the folder"

_MAX_LINKS = 40
_PATH_ONLY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def resolved(path: str | Path) -> Path:
    """Return the path with its links resolved. For root, links are checked at each use instead."""
    if os.geteuid() == 0:
        return Path(path)
    real = os.path.realpath(path)
    return Path(path) if real == os.path.abspath(path) else Path(real)  # noqa: PTH100


def open_folder(path: str | Path) -> int:
    """Open a folder for reading and return its descriptor."""
    try:
        at = _walk(None, os.fspath(path) or ".", [_MAX_LINKS])
        try:
            return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
        finally:
            os.close(at)
    except OSError as error:
        error.filename = str(path)
        raise


@contextlib.contextmanager
def opened(folder: str | Path) -> Iterator[int]:
    fd = open_folder(folder)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def closed_on_error(fd: int) -> Iterator[None]:
    try:
        yield
    except OSError:
        os.close(fd)
        raise


@contextlib.contextmanager
def parent_of(path: Path) -> Iterator[int]:
    """Open the folder of a path for the block; OSErrors of the block get the whole path."""
    with opened(path.parent) as at:
        try:
            yield at
        except OSError as error:
            error.filename = str(path)
            raise


def open_file(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open a file that is not a link. Raises OSError, FOREIGN among others."""
    with parent_of(path) as at:
        fd = os.open(path.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=at)
        with closed_on_error(fd):
            if flags & os.O_ACCMODE != os.O_RDONLY:
                check_hard_link(at, fd)
        return fd


def check_hard_link(folder: int, fd: int) -> None:
    """Raise OSError (FOREIGN) if root must not write to this file of the folder.

    The owner of a folder can make a hard link there to a file of another user.
    """
    status = os.fstat(fd)
    if os.geteuid() or status.st_nlink < 2 or status.st_uid == os.fstat(folder).st_uid:
        return
    raise OSError(FOREIGN, FOREIGN_TEXT)


def open_linked(path: Path, flags: int) -> int:
    """Open an existing file for reading; a symbolic link is followed by the rule for folders.

    Raises OSError, UNTRUSTED among others.
    """
    try:
        return _open_linked(None, str(path), str(path), flags, [_MAX_LINKS])
    except OSError as error:
        error.filename = str(path)
        raise


def create_file(path: Path, mode: int = 0o600) -> int:
    """Create a file for reading and writing, after removing a file or link of that name.

    Otherwise the owner of the folder could redirect the writes by a link.
    """
    with parent_of(path) as at:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=at)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(path.name, flags, mode, dir_fd=at)


def make_folder(path: Path, mode: int = 0o777) -> None:
    with parent_of(path) as at:
        os.mkdir(path.name, mode, dir_fd=at)


def remove_folder(path: Path) -> None:
    with parent_of(path) as at:
        os.rmdir(path.name, dir_fd=at)


def remove(path: Path, missing_ok: bool = False) -> None:
    try:
        with parent_of(path) as at:
            os.unlink(path.name, dir_fd=at)
    except FileNotFoundError:
        if not missing_ok:
            raise


def rename(path: Path, target: Path) -> None:
    """Rename a file; an existing target is replaced."""
    with parent_of(path) as at, parent_of(target) as to:
        os.rename(path.name, target.name, src_dir_fd=at, dst_dir_fd=to)


def sync_folder(folder: Path) -> None:
    """Make created, renamed and removed files of a folder durable."""
    with opened(folder) as fd:
        os.fsync(fd)


# --- one folder after another ---------------------------------------------------------------------


def _walk(start: int | None, path: str, links: list[int]) -> int:
    """Return an O_PATH descriptor, which needs no permission to read the folders of the path.

    `links` is a list with one number: the links that may still be followed.
    """
    root, walked = ("/", "/") if path.startswith("/") else (".", "")
    at = os.open(root, _PATH_ONLY, dir_fd=start)
    for name in filter(None, path.split("/")):
        walked += name
        try:
            entered = _enter(at, name, walked, links)
        finally:
            os.close(at)
        at = entered
        walked += "/"
    return at


def _enter(at: int, name: str, full_path: str, links: list[int]) -> int:
    try:
        return os.open(name, _PATH_ONLY | os.O_NOFOLLOW, dir_fd=at)
    except NotADirectoryError:
        target = _target_of(at, name, full_path, links, "folder")
        if target is None:
            raise
    return _walk(at, target, links)


def _open_linked(start: int | None, path: str, full_path: str, flags: int, links: list[int]) -> int:
    """Open a file or the target of a link. `full_path` is for messages."""
    folder, name = os.path.split(path)
    at = _walk(start, folder, links)
    try:
        target = _target_of(at, name or ".", full_path, links, "file")
        if target is None:
            return os.open(name or ".", flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
        full_path = os.path.join(os.path.dirname(full_path), target)  # noqa: PTH118, PTH120
        return _open_linked(at, target, full_path, flags, links)
    finally:
        os.close(at)


def _target_of(at: int, name: str, full_path: str, links: list[int], kind: str) -> str | None:
    """Return the target of a symbolic link; None for another file.

    Reads the target by the link's descriptor, because the name may refer to another link by now.
    """
    link = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        status = os.fstat(link)
        if not stat.S_ISLNK(status.st_mode):
            return None
        if status.st_uid not in (0, os.geteuid()):
            raise OSError(UNTRUSTED, _untrusted_text(full_path, status.st_uid, kind), full_path)
        links[0] -= 1
        if links[0] < 0:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), full_path)
        return os.readlink("", dir_fd=link)
    finally:
        os.close(link)


def _untrusted_text(full_path: str, uid: int, kind: str) -> str:
    try:
        owner = pwd.getpwuid(uid).pw_name
    except KeyError:
        owner = str(uid)
    advice = f"put the {kind} itself there, or make the link as root"
    return f"{full_path} is a symbolic link of user {owner}; {advice}"
