"""Files and folders that are reached by no symbolic link of another user.

A process of root that works in the folder of another user must stay there, also when that user
replaces a folder by a link at that moment. So each folder on the way is opened relative to the one
before, and what is made, renamed or removed in the last one goes by its descriptor. A link to a
folder, or to a file that is read, is followed only if root or the user of this process made it.
csrc/base/folder.c does the same.

For root this includes the path that an operator gave. Other users may give a path with any links,
because they can only reach what is theirs: `resolved` takes the links out once, before it is used.
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
"""The errno of the refusal; the core has the same (BS_UNTRUSTED_LINK of csrc/base/folder.h)."""

FOREIGN = errno.EMLINK
"""The errno for a hard link that root must not write to (BS_FOREIGN_HARD_LINK of file_io.h)."""
FOREIGN_TEXT = "it is a hard link to a file of another user than the owner of the folder"

_MOST_LINKS = 40
_ON_THE_WAY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def resolved(given: str | Path) -> Path:
    """A path as an operator gave it, or, if links are on its way, the one that they lead to.

    Root gets its own path back, and the functions below check each link on the way.
    """
    if os.geteuid() == 0:
        return Path(given)
    real = os.path.realpath(given)
    return Path(given) if real == os.path.abspath(given) else Path(real)  # noqa: PTH100


def open_folder(path: str | Path) -> int:
    """A descriptor of a folder, for reading. OSError, UNTRUSTED among others."""
    try:
        at = _walk(None, os.fspath(path) or ".", [_MOST_LINKS])
        try:
            return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
        finally:
            os.close(at)
    except OSError as error:
        error.filename = str(path)
        raise


@contextlib.contextmanager
def opened(folder: str | Path) -> Iterator[int]:
    """As open_folder, for the `with` block."""
    fd = open_folder(folder)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def parent_of(path: Path) -> Iterator[int]:
    """As opened, of the folder that a path is in; an OSError of the block names the whole path."""
    with opened(path.parent) as at:
        try:
            yield at
        except OSError as error:
            error.filename = str(path)
            raise


def open_file(path: Path, flags: int, mode: int = 0o600) -> int:
    """As os.open, but the file itself may be no link at all. OSError, FOREIGN among others."""
    with parent_of(path) as at:
        fd = os.open(path.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=at)
        try:
            if flags & os.O_ACCMODE != os.O_RDONLY:
                check_hard_link(at, fd)
        except OSError:
            os.close(fd)
            raise
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
    links = [_MOST_LINKS]
    place, name = path, path.name
    at = _walk(None, os.fspath(path.parent), links)
    try:
        while True:
            target = _target_of(at, name, str(place), links)
            if target is None:
                return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            folder, name = os.path.split(target)
            place = place.parent / target
            following = _walk(at, folder, links)
            os.close(at)
            at = following
            name = name or "."
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(at)


def create_file(path: Path, mode: int = 0o600) -> int:
    """A descriptor for reading and writing of a new file, after removing what had its name.

    So nothing is written to a link or file that the owner of the folder has put there. OSError.
    """
    with parent_of(path) as at:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=at)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(path.name, flags, mode, dir_fd=at)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """As os.mkdir. OSError."""
    with parent_of(path) as at:
        os.mkdir(path.name, mode, dir_fd=at)


def remove_folder(path: Path) -> None:
    """As os.rmdir. OSError."""
    with parent_of(path) as at:
        os.rmdir(path.name, dir_fd=at)


def remove(path: Path, missing_ok: bool = False) -> None:
    """As Path.unlink. OSError."""
    try:
        with parent_of(path) as at:
            os.unlink(path.name, dir_fd=at)
    except FileNotFoundError:
        if not missing_ok:
            raise


def rename(path: Path, target: Path) -> None:
    """As os.rename, which takes the place of a target that is there. OSError."""
    with parent_of(path) as at, parent_of(target) as to:
        os.rename(path.name, target.name, src_dir_fd=at, dst_dir_fd=to)


def sync_folder(folder: Path) -> None:
    """What was created or removed in it is on disk afterwards. OSError."""
    with opened(folder) as fd:
        os.fsync(fd)


# --- one folder after another ---------------------------------------------------------------------


def _walk(start: int | None, path: str, links: list[int]) -> int:
    """A descriptor only to go on from, which needs no right to read the folders on the way."""
    root, place = ("/", "/") if path.startswith("/") else (".", "")
    at = os.open(root, _ON_THE_WAY, dir_fd=start)
    for name in filter(None, path.split("/")):
        place += name
        try:
            following = _enter(at, name, place, links)
        finally:
            os.close(at)
        at = following
        place += "/"
    return at


def _enter(at: int, name: str, place: str, links: list[int]) -> int:
    try:
        return os.open(name, _ON_THE_WAY | os.O_NOFOLLOW, dir_fd=at)
    except NotADirectoryError:
        link = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        return _follow(at, link, place, links)
    finally:
        os.close(link)


def _follow(at: int, link: int, place: str, links: list[int]) -> int:
    if not stat.S_ISLNK(os.fstat(link).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), place)
    return _walk(at, _read_target(link, place, links, "folder"), links)


def _target_of(at: int, name: str, place: str, links: list[int]) -> str | None:
    """The target of a file that is a link, None of other files."""
    link = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        if not stat.S_ISLNK(os.fstat(link).st_mode):
            return None
        return _read_target(link, place, links, "file")
    finally:
        os.close(link)


def _read_target(link: int, place: str, links: list[int], kind: str) -> str:
    """The target is read from the link that was looked at: its name can be another's now."""
    status = os.fstat(link)
    if status.st_uid not in (0, os.geteuid()):
        raise OSError(UNTRUSTED, _refusal(place, status.st_uid, kind), place)
    links[0] -= 1
    if links[0] < 0:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), place)
    return os.readlink("", dir_fd=link)


def _refusal(place: str, uid: int, kind: str) -> str:
    try:
        owner = pwd.getpwuid(uid).pw_name
    except KeyError:
        owner = str(uid)
    return (
        f"{place} is a symbolic link of user {owner}; put the {kind} itself there, or make the link"
        " as root"
    )
