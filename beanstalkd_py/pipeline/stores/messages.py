"""Decodes one file of a history store into rows."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any, BinaryIO, cast

import pyarrow as pa

from beanstalkd_py.errors import StoreUsageError
from beanstalkd_py.history._store import lib as store_lib
from beanstalkd_py.history.files.commit_log import FAULTS
from beanstalkd_py.history.files.size_detection import index_sizes_of
from beanstalkd_py.pipeline._columns import ffi, lib
from beanstalkd_py.pipeline.sources.columns import Table, batches
from beanstalkd_py.pipeline.sources.decoder import Decoder, Rows
from beanstalkd_py.pipeline.sources.file_buffer import in_c
from beanstalkd_py.pipeline.sources.read_modes import Mode
from beanstalkd_py.pipeline.stores.files import StoreFile

MIN_MESSAGE_BYTES = 91
UNIT = 20
"""Bytes of a unit of a consume queue and of an entry of the index."""
CHECKS = store_lib.HS_CHECK_BODY | store_lib.HS_CHECK_PROPERTY_CRC


class Messages(Decoder[StoreFile]):
    def __init__(self, table: Table, view: str, mode: Mode, checksums: bool) -> None:
        super().__init__(table, mode)
        self._checks = CHECKS if checksums else 0
        views: dict[str, Callable[[StoreFile, Any], Rows]] = {
            "messages": self._log,
            "queues": self._units,
            "index": self._index,
        }
        self._view = views[view]

    def rows(self, file: StoreFile, data: Any) -> Rows:
        return self._view(file, data)

    def _log(self, file: StoreFile, data: Any) -> Rows:
        with in_c(data) as (memory, length):
            log = ffi.new("bc_log *")
            log.data, log.length, log.base = memory, length, file.start
            log.to = file.start + min(file.end, length)
            log.checks = self._checks
            if file.exact:
                log.at = file.begin
            else:
                lib.bc_log_seek(log, file.begin)
            yield from batches(
                self._table,
                file.constants(),
                MIN_MESSAGE_BYTES,
                lambda: min(length, file.end) - log.at,
                lambda batch: lib.bc_log_read(log, batch),
                lambda: self._skip_fault(file, log, length),
            )

    def _skip_fault(self, file: StoreFile, log: Any, length: int) -> Rows:
        fault = log.fault
        what = f"unreadable message: {FAULTS[fault.found]}"
        if fault.next < length:
            what += f"; reading goes on at {file.start + fault.next}"
        else:
            what += "; the rest of the file is lost"
        torn = bool(fault.torn) and file.last
        yield from self.of_fault(file.fault(fault.at, what, torn))
        lib.bc_log_skip(log)

    def _units(self, file: StoreFile, data: Any) -> Rows:
        with in_c(data) as (memory, length):
            at, first = ffi.new("int64_t *"), file.start // UNIT
            yield from batches(
                self._table,
                file.constants(),
                UNIT,
                lambda: length,
                lambda batch: lib.bc_units_read(memory, length, first, at, batch),
            )

    def _index(self, file: StoreFile, data: Any) -> Rows:
        try:
            slots, entries = index_sizes_of(_as_file(data), len(data), file.path)
        except StoreUsageError as error:
            yield from self.unreadable(file, str(error).partition(": ")[2])
            return
        with in_c(data) as (memory, length):
            at = ffi.new("int32_t *")
            yield from batches(
                self._table,
                file.constants(),
                UNIT,
                lambda: length,
                lambda batch: lib.bc_index_read(memory, length, slots, entries, at, batch),
            )


def _as_file(data: Any) -> BinaryIO:
    return cast(BinaryIO, data if isinstance(data, mmap.mmap) else pa.BufferReader(data))
