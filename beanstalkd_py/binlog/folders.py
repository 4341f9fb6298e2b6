"""A binlog folder as a tool finds it: its shards, and whether a server is running there.

Looking takes no lock and changes nothing. `held` is for tools that need the folder for themselves.
What is in the files is not known here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from beanstalkd_py import errors, symlinks
from beanstalkd_py.binlog.layout import (
    LAYOUT,
    LOCK,
    STAGED,
    TOP_LOCK,
    WHOLE,
    FileLock,
    Layout,
    binlog_files,
    folders_of,
    read_layout,
    shard_folders,
)
from beanstalkd_py.binlog.permission import check_permission
from beanstalkd_py.binlog.regular_file import open_regular

HIGHEST_NUMBER = 2**31 - 1
"""C beanstalkd counts its files in an int."""

_FLOCK = struct.Struct("@hhqqi4x")
"""struct flock of 64-bit Linux: type, whence, start, length, process."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One whole folder. `prefix` is what its files are called by, before their names."""

    path: Path
    prefix: str
    live: bool

    def numbers(self) -> list[int]:
        """N of every binlog.N there is now, rising. Raises OSError."""
        found = [int(path.suffix[1:]) for path in binlog_files(self.path)]
        return [number for number in found if number <= HIGHEST_NUMBER]

    def label(self, number: int) -> str:
        """What a file is called."""
        return f"{self.prefix}binlog.{number}"

    def size(self) -> int:
        """Bytes of all its files; one that goes meanwhile has none."""
        total = 0
        for number in self.numbers():
            with contextlib.suppress(FileNotFoundError):
                total += (self.path / f"binlog.{number}").stat().st_size
        return total


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder as it was found.

    `missing` are shards that the layout names and that are not there; `strangers` files beside
    shards, from a server that knew nothing of them.
    """

    top: Path
    layout: Layout
    shards: tuple[Shard, ...]
    missing: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()

    @property
    def live(self) -> bool:
        """Whether a server runs on it or on a shard of it."""
        return any(shard.live for shard in self.shards)


def look_at_files(top: Path) -> Folder:
    """As look_at, of a folder that has binlog files, or should have some. Raises BinlogFolderError.

    A folder without any is a mistake: what is said of it would be said of no queue.
    """
    folder = look_at(top)
    if folder.missing or folder.strangers:
        return folder
    try:
        has_files = any(shard.numbers() for shard in folder.shards)
    except OSError as error:
        raise errors.BinlogFolderError(
            f"cannot read binlog folder {top}: {error.strerror}"
        ) from error
    if not has_files:
        raise errors.BinlogFolderError(f"no binlog files in {top}; give the folder of -b")
    return folder


def look_at(top: Path) -> Folder:
    """What is there, all of it readable. Raises BinlogFolderError with what to do about it."""
    top = symlinks.resolved(top)
    try:
        if not top.is_dir():
            what = "is not a directory" if top.exists() else "does not exist"
            raise errors.BinlogFolderError(f"binlog folder {top} {what}; give the folder of -b")
        check_permission(top, writing=False)
        return _look_at(top)
    except OSError as error:
        raise errors.BinlogFolderError(
            f"cannot read binlog folder {top}: {error.strerror}"
        ) from error


def _look_at(top: Path) -> Folder:
    if os.path.lexists(top / STAGED):
        raise errors.BinlogFolderError(
            f"binlog folder {top} was being resharded and that was interrupted;"
            " start the server on it, or run 'beanstalkd-py binlog reshard', which ends it"
        )
    layout = read_layout(top)
    live = holder_of(top / TOP_LOCK) is not None
    if layout is None:
        shards = shard_folders(top)
        if shards:
            raise errors.BinlogFolderError(
                f"binlog folder {top} has {shards[0].name} but no file {LAYOUT}; restore it,"
                f" or name a shard: {shards[0]}"
            )
        return Folder(top, WHOLE, (_shard(top, "", live),))
    paths = folders_of(top, layout)
    return Folder(
        top=top,
        layout=layout,
        shards=tuple(_shard(path, f"{path.name}/", live) for path in paths if path.is_dir()),
        missing=tuple(path.name for path in paths if not path.is_dir()),
        strangers=tuple(path.name for path in binlog_files(top)),
    )


def _shard(path: Path, prefix: str, live: bool) -> Shard:
    return Shard(path, prefix, live or holder_of(path / LOCK) is not None)


def holder_of(lock: Path) -> int | None:
    """The process that has this lock, 0 if it cannot be told, None if nobody has. Takes nothing."""
    try:
        fd = open_regular(lock, os.O_RDONLY)
    except OSError:
        return None  # no file, a guard that leads nowhere, or none of our business
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else max(0, process)


@contextlib.contextmanager
def held(top: Path, writing: bool) -> Iterator[Folder]:
    """The folder while no server can start on it. Raises BinlogLockedError, BinlogFolderError.

    Who only reads (`writing` false) makes no lock file: where there is none, no server has been.
    """
    top = symlinks.resolved(top)
    look_at(top)  # the usual mistakes, before anything is locked
    check_permission(top, writing)
    with contextlib.ExitStack() as stack:
        if writing or os.path.lexists(top / LAYOUT):
            _hold(stack, top / TOP_LOCK, writing)
        folder = look_at(top)
        for shard in folder.shards:
            _hold(stack, shard.path / LOCK, writing)
        if writing and folder.layout == WHOLE:
            stack.callback(symlinks.remove, top / TOP_LOCK, missing_ok=True)
        yield folder


def _hold(stack: contextlib.ExitStack, lock: Path, writing: bool) -> None:
    if not writing and not os.access(lock, os.W_OK):
        # Nothing to lock, or not for us: a look has to do.
        if holder_of(lock) is not None:
            raise _in_use(lock)
        return
    try:
        stack.callback(FileLock(lock).close)
    except errors.BinlogLockedError:
        raise _in_use(lock) from None


def _in_use(lock: Path) -> errors.BinlogLockedError:
    holder = holder_of(lock)
    who = f"process {holder}" if holder else "another process"
    return errors.BinlogLockedError(
        f"binlog folder {lock.parent} is locked by {who}; stop the server on it first"
    )
