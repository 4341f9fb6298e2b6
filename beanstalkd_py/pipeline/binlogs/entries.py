"""Decodes one binlog file into rows.

Each file is judged alone, so rows do not depend on the division of files among tasks. Faults that
only earlier files reveal, such as a job that changes its tube, are left to `binlog verify`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from beanstalkd_py.binlog import damage_messages
from beanstalkd_py.pipeline._columns import ffi, lib
from beanstalkd_py.pipeline.sources.columns import ALL, Table, batches
from beanstalkd_py.pipeline.sources.file_buffer import in_c
from beanstalkd_py.pipeline.sources.read_modes import Fault, Mode, rows_of

LEAST_ENTRY = 84
"""Bytes."""


@dataclass(frozen=True, slots=True)
class BinlogFile:
    """A binlog file, or its entries from offset `begin` up to `end`."""

    path: str
    host: str
    shard: str
    number: int
    size: int
    begin: int = 0
    end: int = ALL

    @property
    def name(self) -> str:
        """The name before the file was archived as binlog.N.done."""
        return f"binlog.{self.number}"

    @property
    def key(self) -> tuple[str, str, int]:
        """Host, shard and number, which are unique."""
        return self.host, self.shard, self.number

    def constants(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "shard": self.shard,
            "file": self.name,
            "file_number": self.number,
            "path": self.path,
        }

    def fault(self, offset: int, what: str, torn: bool = False) -> Fault:
        at = {"offset": offset}
        return Fault(self.path, offset, what, self.constants(), at, torn)


class Entries:
    """Decodes files one after another. Methods raise MalformedError.

    `is_followed` returns whether a server has written to a later file.
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
        return rows_of(file.fault(0, damage_messages.unreadable_file(why)), self._table, self._mode)

    def rows(self, file: BinlogFile, data: Any) -> Iterator[pa.RecordBatch]:
        entries = self._entries
        with in_c(data) as (memory, length):
            kind = lib.bc_entries_open(entries, memory, length, file.number)
            if kind == lib.BC_FILE_ENTRIES:
                lib.bc_entries_range(entries, file.begin, file.end)
                yield from batches(
                    self._table,
                    file.constants(),
                    LEAST_ENTRY,
                    lambda: length - lib.bc_entries_end(entries),
                    lambda batch: lib.bc_entries_read(entries, batch),
                    lambda: self._faulty(file, length),
                )
            elif kind == lib.BC_FILE_VERSION:
                version = lib.bc_entries_version(entries)
                fault = file.fault(0, damage_messages.other_version(version))
                yield from rows_of(fault, self._table, self._mode)
            elif kind < 0:
                raise MemoryError

    def _faulty(self, file: BinlogFile, length: int) -> Iterator[pa.RecordBatch]:
        lib.bc_entries_fault(self._entries, self._fault)
        at, next_offset, torn = self._fault.at, self._fault.next, bool(self._fault.torn)
        if torn and self._fault.cut and self._is_followed(file):
            torn = False  # a crash leaves preallocated space; this file lacks its end
        if torn:
            what = damage_messages.TORN
        else:
            why = ffi.string(self._fault.why).decode()
            what = damage_messages.unreadable_entry(why, next_offset, length)
        if file.begin <= at:
            yield from rows_of(file.fault(at, what, torn), self._table, self._mode)
        lib.bc_entries_skip(self._entries)
