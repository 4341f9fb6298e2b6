"""Inspect a binlog folder: its shards, and whether a server is running on it.

Inspection takes no lock and changes nothing; `held` locks the folder for a tool.
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
from beanstalkd_py.binlog import layout as layouts
from beanstalkd_py.binlog.layout import FileLock, Layout
from beanstalkd_py.binlog.permission import check_permission
from beanstalkd_py.regular_file import open_regular

_FLOCK = struct.Struct("@hhqqi4x")
"""struct flock of 64-bit Linux: type, whence, start, length, process."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One undivided folder; it is `live` if a server runs on it.

    `prefix` precedes the names of its files in messages. Files before `first` are left out.
    """

    path: Path
    prefix: str
    live: bool
    first: int = 0

    def numbers(self) -> list[int]:
        """Return the numbers of all files binlog.N, ascending. Raises OSError."""
        numbers = [layouts.number_of(path) for path in layouts.binlog_files(self.path)]
        return [number for number in numbers if self.first <= number <= layouts.HIGHEST_NUMBER]

    def label(self, number: int) -> str:
        return f"{self.prefix}binlog.{number}"

    def size(self) -> int:
        """Return the bytes of all files; a file removed meanwhile counts as empty."""
        total = 0
        for number in self.numbers():
            with contextlib.suppress(FileNotFoundError):
                total += (self.path / f"binlog.{number}").stat().st_size
        return total


@dataclass(frozen=True, slots=True)
class Folder:
    """The state of a folder.

    `missing` shards are in the layout but do not exist; `foreign_files` are binlog files beside
    shards, written by a server that does not know the layout.
    """

    top: Path
    layout: Layout
    shards: tuple[Shard, ...]
    missing: tuple[str, ...] = ()
    foreign_files: tuple[str, ...] = ()

    @property
    def live(self) -> bool:
        """Whether a server runs on it or on one of its shards."""
        return any(shard.live for shard in self.shards)


def inspect_files(top: Path) -> Folder:
    """Like inspect_folder, and raise BinlogFolderError if the folder has no binlog files."""
    folder = inspect_folder(top)
    if folder.missing or folder.foreign_files:
        return folder
    with layouts.reading(top):
        has_files = any(shard.numbers() for shard in folder.shards)
    if not has_files:
        raise errors.BinlogFolderError(f"no binlog files in {top}; give the folder of -b")
    return folder


def inspect_folder(top: Path) -> Folder:
    """Return the state of a readable folder. Raises BinlogFolderError with a remedy."""
    top = symlinks.resolved(top)
    with layouts.reading(top):
        if not top.is_dir():
            what = "is not a directory" if top.exists() else "does not exist"
            raise errors.BinlogFolderError(f"binlog folder {top} {what}; give the folder of -b")
        check_permission(top, writing=False)
        return _inspect(top)


def _inspect(top: Path) -> Folder:
    if os.path.lexists(top / layouts.STAGED):
        raise errors.BinlogFolderError(
            f"binlog folder {top} was being resharded and that was interrupted;"
            " start the server on it, or run 'beanstalkd-py binlog reshard', which ends it"
        )
    layout = layouts.read_layout(top)
    live = holder_of(top / layouts.TOP_LOCK) is not None
    if layout is None:
        shards = layouts.shard_folders(top)
        if shards:
            raise errors.BinlogFolderError(
                f"binlog folder {top} has {shards[0].name} but no file {layouts.LAYOUT};"
                f" restore it, or name a shard: {shards[0]}"
            )
        return Folder(top, layouts.WHOLE, (_shard(top, "", live),))
    paths = layouts.folders_of(top, layout)
    return Folder(
        top=top,
        layout=layout,
        shards=tuple(_shard(path, f"{path.name}/", live) for path in paths if path.is_dir()),
        missing=tuple(path.name for path in paths if not path.is_dir()),
        foreign_files=tuple(path.name for path in layouts.binlog_files(top)),
    )


def _shard(path: Path, prefix: str, live: bool) -> Shard:
    return Shard(path, prefix, live or holder_of(path / layouts.LOCK) is not None)


def holder_of(lock: Path) -> int | None:
    """Return the process that holds a lock, 0 if it is unknown, None if nobody does."""
    try:
        fd = open_regular(lock)
    except OSError:
        return None  # no file, or no access
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else max(0, process)


@contextlib.contextmanager
def locked_folder(top: Path, writing: bool) -> Iterator[Folder]:
    """Lock a folder against servers. Raises BinlogLockedError, BinlogFolderError.

    For reading, no lock file is created: without one, no server has ever run there.
    """
    top = symlinks.resolved(top)
    inspect_folder(top)  # report usual mistakes before anything is locked
    if writing:
        layouts.check_not_replicated(top)
    check_permission(top, writing)
    with contextlib.ExitStack() as stack:
        if writing or os.path.lexists(top / layouts.LAYOUT):
            _hold(stack, top / layouts.TOP_LOCK, writing)
        folder = inspect_folder(top)
        for shard in folder.shards:
            _hold(stack, shard.path / layouts.LOCK, writing)
        if writing and folder.layout == layouts.WHOLE:
            stack.callback(symlinks.remove, top / layouts.TOP_LOCK, missing_ok=True)
        yield folder


def _hold(stack: contextlib.ExitStack, lock: Path, writing: bool) -> None:
    if not writing and not os.access(lock, os.W_OK):
        # The lock file is missing or not writable, so it can only be tested.
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
