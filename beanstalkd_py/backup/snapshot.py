"""The files of a binlog folder at one moment, while a server may write to it.

A server only appends to the last file of a shard, and removes the oldest files, after it has moved
their jobs to the last one. So the open files of a shard, the last one cut behind an entry, are what
a kill at that moment would leave. All files are opened before any is read: a file that the server
removes meanwhile can still be read, and if one is gone before it was opened, the folder is listed
again.

Shards are cut one after another. Meanwhile the server may move a job from a shard that is cut late
to one that was cut early; then no shard would have the job. So the last files are read on twice,
until no entry between the two readings ends a moved job. What a shard had at the first of them,
all others have had before the second.

history.id is left out: the history may have read further than a restored folder goes.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.binlog.file_walk import HEADER_BYTES, Walk, has_entries
from beanstalkd_py.binlog.folders import Folder, Shard, inspect_files
from beanstalkd_py.binlog.layout import LAYOUT, POLICIES, SCHEDULES, WHOLE
from beanstalkd_py.core.binlog_reader import FileKind, Selection
from beanstalkd_py.regular_file import open_regular

TRIES = 100
READINGS = 1000
_KEPT = re.compile(r"binlog\.[1-9]\d{0,9}\.(bad|done).*")
_MOVED = b'"ended":"moved"'


@dataclass(frozen=True, slots=True)
class OpenFile:
    """An open file, of which the first `size` bytes belong to the snapshot.

    `path` is relative to the folder. A file that is not `complete` may grow.
    """

    path: str
    fd: int
    size: int
    complete: bool


class _ChangedError(Exception):
    """The server has removed or renamed a file before it was opened, or begun a new one."""


@contextlib.contextmanager
def snapshot(top: Path) -> Iterator[tuple[Folder, list[OpenFile]]]:
    """Open the files of a folder. Raises BinlogFolderError, BinlogToolError, OSError."""
    for _ in range(TRIES):
        folder = inspect_files(top)
        _check_shards(folder)
        with contextlib.ExitStack() as stack:
            try:
                files = _open_all(stack, folder)
            except _ChangedError:
                continue
            yield folder, files
            return
    raise errors.BinlogToolError(f"binlog folder {top} changes too fast; try again later")


def _check_shards(folder: Folder) -> None:
    if folder.missing:
        text = f"binlog folder {folder.top} lacks {folder.missing[0]}; restore it first"
        raise errors.BinlogFolderError(text)
    if folder.foreign_files:
        raise errors.BinlogFolderError(
            f"binlog folder {folder.top} has {folder.foreign_files[0]} beside its shards, which"
            " another server wrote; move it to another folder"
        )


def _open_all(stack: contextlib.ExitStack, folder: Folder) -> list[OpenFile]:
    shards = [_Shard(stack, shard) for shard in folder.shards]
    files = [
        _open(stack, folder.top, name)
        for name in (LAYOUT, POLICIES, SCHEDULES)
        if (folder.top / name).exists()
    ]
    for shard in shards:
        shard.open_files()
    for shard in shards:
        shard.read_on()
    if folder.live and folder.layout != WHOLE:
        _read_on_without_moves(folder, shards)
    if any(shard.has_grown() for shard in shards):
        raise _ChangedError
    return files + [file for shard in shards for file in shard.files()]


def _read_on_without_moves(folder: Folder, shards: list[_Shard]) -> None:
    for shard in shards:
        shard.read_on()  # the first reading took long
    for _ in range(READINGS):
        moved = [shard.read_on() for shard in shards]
        if not any(moved):
            return
        if any(shard.has_grown() for shard in shards):
            raise _ChangedError
    raise errors.BinlogToolError(
        f"the server of binlog folder {folder.top} moves too many jobs between its workers; try"
        " again later"
    )


class _Shard:
    """One shard. Methods raise _ChangedError, OSError."""

    def __init__(self, stack: contextlib.ExitStack, shard: Shard) -> None:
        self._stack = stack
        self._shard = shard
        self._walk = Walk(shard, Selection(as_json=True, states=("deleted",)))
        stack.callback(self._walk.close)
        self._is_read = False
        self._kept: list[OpenFile] = []
        self._files: dict[int, OpenFile] = {}

    def open_files(self) -> None:
        """Open all files but those that are preallocated."""
        path, prefix = self._shard.path, self._shard.prefix
        for name in sorted(each.name for each in path.iterdir()):
            if _KEPT.fullmatch(name):
                self._kept.append(_open(self._stack, path, name, prefix))
        numbers = self._shard.numbers()
        while len(numbers) > 1 and not has_entries(self._shard, numbers[-1]):
            del numbers[-1]
        for number in numbers:
            self._files[number] = _open(self._stack, path, f"binlog.{number}", prefix)

    def read_on(self) -> bool:
        """Read the last file to its present end; return whether a job ended there as moved."""
        if not self._files:
            return False
        reader = self._walk.reader
        if self._is_read:
            reader.refresh()
        else:
            try:
                self._is_read = reader.open(max(self._files), "") == FileKind.ENTRIES
            except FileNotFoundError:
                raise _ChangedError from None
        ends: list[bool] = []
        if self._is_read:
            for _ in self._walk.entries("", lambda text: ends.append(_MOVED in bytes(text))):
                pass  # damage is saved as it is
        return any(ends)

    def has_grown(self) -> bool:
        """Return whether there are entries in a file that had none."""
        last = max(self._files, default=0) - (not self._is_read)
        return any(
            number > last and has_entries(self._shard, number) for number in self._shard.numbers()
        )

    def files(self) -> list[OpenFile]:
        """Return all files, the last one cut behind the last entry that was read."""
        files = list(self._files.values())
        if files:
            end = self._walk.reader.facts().end if self._is_read else HEADER_BYTES
            files[-1] = replace(files[-1], size=min(end, files[-1].size), complete=False)
        return self._kept + files


def _open(stack: contextlib.ExitStack, folder: Path, name: str, prefix: str = "") -> OpenFile:
    try:
        fd = open_regular(folder / name)
    except FileNotFoundError:
        raise _ChangedError from None
    stack.callback(os.close, fd)
    return OpenFile(prefix + name, fd, os.fstat(fd).st_size, complete=True)
