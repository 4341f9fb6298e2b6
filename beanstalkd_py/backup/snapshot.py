"""The files of a binlog folder at one moment, while a server may write to it.

A server only appends to the last file of a shard, and removes the oldest files, after it has moved
their jobs to the last one. So the open files of a shard, the last one cut behind an entry, are what
a kill at that moment would leave. All files are opened before any is read: a file that the server
removes meanwhile can still be read, and those that were gone before are not needed.

Shards are cut one after another. Meanwhile the server may move a job from a shard that is cut late
to one that was cut early; then no shard would have the job. So the last files are read on twice,
until no entry between the two readings ends a moved job. What a shard had at the first of them,
all others have had before the second.

Everything is done again if a server has started or ended meanwhile, or has resharded the folder, or
if a file was begun and removed.

A history is opened after the binlog files and before they are read, so it has not read further than
they go. Without it history.id is left out, too: the history of the server may have read further.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.backup.history_files import open_history
from beanstalkd_py.backup.open_file import ChangedError, OpenFile, open_for_backup
from beanstalkd_py.binlog.file_walk import HEADER_BYTES, Walk, has_entries
from beanstalkd_py.binlog.folders import Folder, Shard, inspect_files
from beanstalkd_py.binlog.layout import HISTORY_ID, LAYOUT, POLICIES, SCHEDULES, WHOLE
from beanstalkd_py.core.binlog_reader import FileKind, Selection
from beanstalkd_py.regular_file import read_regular
from beanstalkd_py.replication.replica_state import load_replica

TRIES = 100
READINGS = 1000
_KEPT = re.compile(r"binlog\.[1-9]\d{0,9}\.(bad|done).*")
_MOVED = b'"ended":"moved"'


@contextlib.contextmanager
def snapshot(top: Path, history: Path | None = None) -> Iterator[tuple[Folder, list[OpenFile]]]:
    """Open the files of a folder, and of its history.

    Raises BinlogFolderError, BinlogToolError, ToolUsageError, OSError.
    """
    for _ in range(TRIES):
        _check_role(top)
        folder = inspect_files(top)
        _check_shards(folder)
        identities = _identities(folder)
        with contextlib.ExitStack() as stack:
            try:
                files = _open_all(stack, folder, history)
            except (ChangedError, FileNotFoundError):
                continue
            if inspect_files(top) != folder or _identities(folder) != identities:
                continue  # a server has started or ended, or has resharded the folder
            _check_role(top)
            yield folder, files
            return
    raise errors.BinlogToolError(f"binlog folder {top} changes too fast; try again later")


def _check_role(top: Path) -> None:
    """Refuse a standby: it may lack jobs, and overwrites files that were a primary's."""
    replica = load_replica(top)
    if replica is not None and not replica.is_primary:
        raise errors.ToolUsageError(
            f"binlog folder {top} is the copy of a standby, which may lack jobs; back up the folder"
            " of the primary, which `beanstalkd-py cluster status` shows"
        )


def _identities(folder: Folder) -> list[tuple[int, int]]:
    """Return what identifies the folder and those of its shards. Resharding makes new ones."""
    paths = [folder.top, *(shard.path for shard in folder.shards)]
    found = [path.stat() for path in paths if path.exists()]
    return [(each.st_dev, each.st_ino) for each in found]


def _check_shards(folder: Folder) -> None:
    if folder.missing:
        text = f"binlog folder {folder.top} lacks {folder.missing[0]}; restore it first"
        raise errors.BinlogFolderError(text)
    if folder.foreign_files:
        raise errors.BinlogFolderError(
            f"binlog folder {folder.top} has {folder.foreign_files[0]} beside its shards, which"
            " another server wrote; move it to another folder"
        )


def _open_all(stack: contextlib.ExitStack, folder: Folder, history: Path | None) -> list[OpenFile]:
    shards = [_Shard(stack, shard) for shard in folder.shards]
    files = [
        open_for_backup(stack, folder.top, name)
        for name in (LAYOUT, POLICIES, SCHEDULES)
        if (folder.top / name).exists()
    ]
    for shard in shards:
        shard.open_files()
    if history is not None:
        keys = [shard.history_id() for shard in shards]
        files += open_history(stack, history)
        if keys != [shard.history_id() for shard in shards]:
            raise ChangedError
        files += [file for shard in shards for file in shard.open_history_id()]
    for shard in shards:
        shard.read_on()
    if folder.layout != WHOLE:
        _read_on_without_moves(folder, shards)
    return files + [file for shard in shards for file in shard.files()]


def _read_on_without_moves(folder: Folder, shards: list[_Shard]) -> None:
    for shard in shards:
        shard.read_on()  # the first reading took long
    for _ in range(READINGS):
        moved = [shard.read_on() for shard in shards]
        if not any(moved):
            return
    raise errors.BinlogToolError(
        f"the server of binlog folder {folder.top} moves too many jobs between its workers; try"
        " again later"
    )


class _Shard:
    """One shard. Methods raise ChangedError, OSError."""

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
        for number in self._used_numbers():
            try:
                self._open(number)
            except ChangedError:
                self._files.clear()  # it is no longer needed, and neither are older ones
        # Listed later, so that a file that is renamed meanwhile is in one of the lists.
        names = {each.name for each in path.iterdir()} - {f"binlog.{n}.done" for n in self._files}
        for name in sorted(filter(_KEPT.fullmatch, names), key=_number):
            try:
                self._kept.append(open_for_backup(self._stack, path, name, prefix))
            except ChangedError:
                self._kept = [each for each in self._kept if not each.path.endswith(".done")]

    def history_id(self) -> bytes:
        """Return what identifies the folder in a history, empty without one."""
        try:
            return read_regular(self._shard.path / HISTORY_ID)
        except FileNotFoundError:
            return b""

    def open_history_id(self) -> list[OpenFile]:
        path, prefix = self._shard.path, self._shard.prefix
        if not self.history_id():
            return []
        return [open_for_backup(self._stack, path, HISTORY_ID, prefix)]

    def _used_numbers(self) -> list[int]:
        numbers = self._shard.numbers()
        while len(numbers) > 1 and not has_entries(self._shard, numbers[-1]):
            del numbers[-1]
        return numbers

    def _open(self, number: int) -> None:
        self._files[number] = open_for_backup(
            self._stack, self._shard.path, f"binlog.{number}", self._shard.prefix
        )

    def read_on(self) -> bool:
        """Read everything up to the present end; return whether a job ended there as moved."""
        moved = False
        last = max(self._files, default=0)
        newer = [number for number in self._used_numbers() if number > last]
        if last and newer != list(range(last + 1, last + 1 + len(newer))):
            raise ChangedError  # a file was begun and removed meanwhile
        for number in newer:  # so the file before it does not grow any more
            moved = self._read_last() or moved
            self._open(number)
            self._is_read = False
        return self._read_last() or moved

    def _read_last(self) -> bool:
        if not self._files:
            return False
        reader = self._walk.reader
        if self._is_read:
            reader.refresh()
        else:
            try:
                self._is_read = reader.open(max(self._files), "") == FileKind.ENTRIES
            except FileNotFoundError:
                raise ChangedError from None
        ends: list[bool] = []
        if self._is_read:
            for _ in self._walk.entries("", lambda text: ends.append(_MOVED in bytes(text))):
                pass  # damage is saved as it is
        return any(ends)

    def files(self) -> list[OpenFile]:
        """Return all files, the last one cut behind the last entry that was read."""
        files = [replace(each, size=os.fstat(each.fd).st_size) for each in self._files.values()]
        if files:
            end = self._walk.reader.facts().end if self._is_read else HEADER_BYTES
            files[-1] = replace(files[-1], size=min(end, files[-1].size), complete=False)
        return self._kept + files


def _number(name: str) -> int:
    return int(name.split(".")[1])
