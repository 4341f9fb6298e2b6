"""The rows of one file of a history store, out of its bytes."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

import pyarrow as pa

from beanstalkd_py.errors import StoreUsageError
from beanstalkd_py.history._store import lib as store_lib
from beanstalkd_py.history.files.commit_log import FAULTS
from beanstalkd_py.history.files.size_detection import index_sizes_of
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
from beanstalkd_py.pipeline.sources.read_modes import Mode, rows_of
from beanstalkd_py.pipeline.stores.files import StoreFile

LEAST_MESSAGE = 91
UNIT = 20
"""Bytes, of units and of entries of the index."""
CHECKS = store_lib.HS_CHECK_BODY | store_lib.HS_CHECK_PROPERTY_CRC


class Messages:
    """Makes rows of files, one after another, with what the files have in common."""

    def __init__(self, table: Table, view: str, mode: Mode, checksums: bool) -> None:
        self._table = table
        self._mode = mode
        self._checks = CHECKS if checksums else 0
        views: dict[str, Callable[[StoreFile, Any], Iterator[pa.RecordBatch]]] = {
            "messages": self._log,
            "queues": self._units,
            "index": self._index,
        }
        self.rows = views[view]
        """Of a file, out of all its bytes, which must stay as they are. Raises MalformedError."""

    def unreadable(self, file: StoreFile, why: str) -> Iterator[pa.RecordBatch]:
        """What comes of a file that cannot be read at all. Raises MalformedError."""
        return rows_of(file.fault(0, f"unreadable file: {why}"), self._table, self._mode)

    def _log(self, file: StoreFile, data: Any) -> Iterator[pa.RecordBatch]:
        with in_c(data) as (memory, length):
            log = ffi.new("bc_log *")
            log.data, log.length, log.base = memory, length, file.start
            log.to = file.start + min(file.end, length)
            log.checks = self._checks
            if file.exact:
                log.at = file.begin
            else:
                lib.bc_log_seek(log, file.begin)
            constants = Constants(file.constants())
            found = MORE
            while found in (MORE, FAULT):
                room = max(min(length, file.end) - log.at, 1)
                batch = Batch(self._table, min(ROWS_AT_ONCE, room // LEAST_MESSAGE + 1), room)
                while (found := lib.bc_log_read(log, batch.cdata)) == ROOM:
                    batch.enlarge()
                if batch.rows:
                    yield batch.arrow(constants)
                if found == FAULT:
                    yield from self._left_out(file, log, length)

    def _left_out(self, file: StoreFile, log: Any, length: int) -> Iterator[pa.RecordBatch]:
        fault = log.fault
        what = f"unreadable message: {FAULTS[fault.found]}"
        if fault.next < length:
            what += f"; reading goes on at {file.start + fault.next}"
        else:
            what += "; the rest of the file is lost"
        torn = bool(fault.torn) and file.last
        yield from rows_of(file.fault(fault.at, what, torn), self._table, self._mode)
        lib.bc_log_skip(log)

    def _units(self, file: StoreFile, data: Any) -> Iterator[pa.RecordBatch]:
        with in_c(data) as (memory, length):
            at = ffi.new("int64_t *")
            first = file.start // UNIT
            constants = Constants(file.constants())
            found = MORE
            while found == MORE:
                batch = Batch(self._table, ROWS_AT_ONCE, length)
                found = lib.bc_units_read(memory, length, first, at, batch.cdata)
                if batch.rows:
                    yield batch.arrow(constants)

    def _index(self, file: StoreFile, data: Any) -> Iterator[pa.RecordBatch]:
        try:
            slots, entries = index_sizes_of(_as_file(data), len(data), file.path)
        except StoreUsageError as error:
            yield from self.unreadable(file, str(error).partition(": ")[2])
            return
        with in_c(data) as (memory, length):
            at = ffi.new("int32_t *")
            constants = Constants(file.constants())
            found = MORE
            while found == MORE:
                batch = Batch(self._table, ROWS_AT_ONCE, length)
                found = lib.bc_index_read(memory, length, slots, entries, at, batch.cdata)
                if batch.rows:
                    yield batch.arrow(constants)


def _as_file(data: Any) -> BinaryIO:
    """To read a few bytes here and there; such a file may have hundreds of megabytes."""
    return cast(BinaryIO, data if isinstance(data, mmap.mmap) else pa.BufferReader(data))
