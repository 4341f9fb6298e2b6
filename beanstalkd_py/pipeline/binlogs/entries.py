"""Decodes one binlog file into rows.

Each file is judged alone, so rows do not depend on the division of files among tasks. Faults that
only earlier files reveal, such as a job that changes its tube, are left to `binlog verify`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from beanstalkd_py.binlog import damage_messages
from beanstalkd_py.pipeline._columns import ffi, lib
from beanstalkd_py.pipeline.sources.columns import ALL, Table, batches
from beanstalkd_py.pipeline.sources.decoder import Decoder, Fault, Rows
from beanstalkd_py.pipeline.sources.file_buffer import in_c
from beanstalkd_py.pipeline.sources.read_modes import Mode

MIN_ENTRY_BYTES = 84


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
        return Fault(self.path, offset, what, {**self.constants(), "offset": offset}, torn)


def new_c_decoder() -> Any:
    entries = ffi.gc(lib.bc_entries_new(), lib.bc_entries_free)
    if entries == ffi.NULL:
        raise MemoryError
    return entries


class Entries(Decoder[BinlogFile]):
    """Decodes entries; `is_followed` returns whether a server has written to a later file."""

    def __init__(
        self, table: Table, mode: Mode, is_followed: Callable[[BinlogFile], bool] = lambda _: False
    ) -> None:
        super().__init__(table, mode)
        self._is_followed = is_followed
        self._entries = new_c_decoder()

    def rows(self, file: BinlogFile, data: Any) -> Rows:
        entries = self._entries
        with in_c(data) as (memory, length):
            begin, end = file.begin, file.end
            kind = lib.bc_entries_open(entries, memory, length, file.number, begin, end)
            if kind == lib.BC_FILE_ENTRIES:
                yield from batches(
                    self._table,
                    file.constants(),
                    MIN_ENTRY_BYTES,
                    lambda: length - lib.bc_entries_end(entries),
                    lambda batch: lib.bc_entries_read(entries, batch),
                    lambda: self._skip_fault(file, length),
                )
            elif kind == lib.BC_FILE_VERSION:
                version = lib.bc_entries_version(entries)
                yield from self.of_fault(file.fault(0, damage_messages.other_version(version)))
            elif kind < 0:
                raise MemoryError

    def _skip_fault(self, file: BinlogFile, length: int) -> Rows:
        fault = lib.bc_entries_fault(self._entries)
        torn = bool(fault.torn)
        if torn and fault.cut and self._is_followed(file):
            torn = False  # a crash leaves the preallocated space; this file was truncated
        if torn:
            what = damage_messages.TORN
        else:
            why = ffi.string(fault.why).decode()
            what = damage_messages.unreadable_entry(why, fault.next, length)
        if file.begin <= fault.at:
            yield from self.of_fault(file.fault(fault.at, what, torn))
        lib.bc_entries_skip(self._entries)
