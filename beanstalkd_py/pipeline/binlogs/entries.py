"""The rows of one binlog file, out of its bytes.

Every file is judged by itself, so that rows do not depend on how files are divided among tasks.
What only the files before it can tell - that a job's tube is another one than there - `binlog
verify` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from beanstalkd_py.binlog import damage_messages
from beanstalkd_py.pipeline._columns import ffi, lib
from beanstalkd_py.pipeline.sources.columns import (
    FAULT,
    MORE,
    ROOM,
    ROWS_AT_ONCE,
    Batch,
    Constants,
    Table,
)
from beanstalkd_py.pipeline.sources.file_buffer import in_c
from beanstalkd_py.pipeline.sources.read_modes import Fault, Mode, rows_of

LEAST_ENTRY = 84
"""Bytes."""
ALL = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BinlogFile:
    """One file, and what its name and place say. `begin`..`end` are the entries that are wanted."""

    path: str
    host: str
    shard: str
    number: int
    size: int
    begin: int = 0
    end: int = ALL

    @property
    def name(self) -> str:
        """Also of one that has been archived as binlog.N.done."""
        return f"binlog.{self.number}"

    @property
    def place(self) -> tuple[str, str, int]:
        """Host, shard and number, which no other file should share."""
        return self.host, self.shard, self.number

    def constants(self) -> dict[str, Any]:
        """The columns that are the same in all its rows."""
        return {
            "host": self.host,
            "shard": self.shard,
            "file": self.name,
            "file_number": self.number,
            "path": self.path,
        }

    def fault(self, offset: int, what: str, torn: bool = False) -> Fault:
        """Something that is wrong with it."""
        at = {"offset": offset}
        return Fault(self.path, offset, what, self.constants(), at, torn)


class Entries:
    """Makes rows of files, one after another, with what the files have in common.

    `is_followed` says whether a server has written to a later file than this.
    """

    def __init__(
        self, table: Table, mode: Mode, is_followed: Callable[[BinlogFile], bool] = lambda _: False
    ) -> None:
        self._table = table
        self._mode = mode
        self._is_followed = is_followed
        self._entries = ffi.gc(lib.bc_entries_new(), lib.bc_entries_free)
        self._fault = ffi.new("bc_fault *")
        if self._entries == ffi.NULL:
            raise MemoryError

    def unreadable(self, file: BinlogFile, why: str) -> Iterator[pa.RecordBatch]:
        """What comes of a file that cannot be read at all. Raises MalformedError."""
        return rows_of(file.fault(0, damage_messages.unreadable_file(why)), self._table, self._mode)

    def rows(self, file: BinlogFile, data: Any) -> Iterator[pa.RecordBatch]:
        """All of a file, which must stay as it is meanwhile. Raises MalformedError."""
        with in_c(data) as (memory, length):
            kind = lib.bc_entries_open(self._entries, memory, length, file.number)
            if kind == lib.BC_FILE_ENTRIES:
                lib.bc_entries_range(self._entries, file.begin, file.end)
                yield from self._read(file, length)
            elif kind == lib.BC_FILE_VERSION:
                version = lib.bc_entries_version(self._entries)
                fault = file.fault(0, damage_messages.other_version(version))
                yield from rows_of(fault, self._table, self._mode)
            elif kind < 0:
                raise MemoryError

    def _read(self, file: BinlogFile, length: int) -> Iterator[pa.RecordBatch]:
        constants, done = Constants(file.constants()), 0
        while True:
            room = max(length - done, 1)
            batch = Batch(self._table, min(ROWS_AT_ONCE, room // LEAST_ENTRY + 1), room)
            while (found := lib.bc_entries_read(self._entries, batch.cdata)) == ROOM:
                batch.enlarge()
            if found < 0:
                raise MemoryError
            if batch.rows:
                yield batch.arrow(constants)
            if found == FAULT:
                yield from self._left_out(file, length)
            elif found != MORE:
                return
            done = lib.bc_entries_end(self._entries)

    def _left_out(self, file: BinlogFile, length: int) -> Iterator[pa.RecordBatch]:
        lib.bc_entries_fault(self._entries, self._fault)
        at, next_offset, torn = self._fault.at, self._fault.next, bool(self._fault.torn)
        if torn and self._fault.cut and self._is_followed(file):
            torn = False  # a crash leaves what a file has reserved; this one lacks its end
        if torn:
            what = damage_messages.TORN
        else:
            why = ffi.string(self._fault.why).decode()
            what = damage_messages.unreadable_entry(why, next_offset, length)
        if file.begin <= at:
            yield from rows_of(file.fault(at, what, torn), self._table, self._mode)
        lib.bc_entries_skip(self._entries)
