"""Dispatch: add messages of the log to queues and index, some time after the append."""

from __future__ import annotations

import threading
from typing import Any

from beanstalkd_py.errors import StoreDamagedError
from beanstalkd_py.history._store import ffi, lib
from beanstalkd_py.history.files.checkpoint import Dispatched
from beanstalkd_py.history.files.commit_log import PIECE, CommitLog, damage_error, record_size
from beanstalkd_py.history.files.consume_queue import ConsumeQueues
from beanstalkd_py.history.files.index import Index
from beanstalkd_py.history.files.segments import Segments


class GapError(StoreDamagedError):
    """A message's queue offset is not the next one, so units before it are missing."""


class DispatchReader:
    """Computes units and keys of the log's messages, a piece of the log at a time."""

    def __init__(self, segments: Segments) -> None:
        self.found = ffi.new("hs_dispatched *")
        """The result of `read`, valid until the next call."""
        self._segments = segments
        self._dispatch = ffi.gc(lib.hs_dispatch_new(), lib.hs_dispatch_free)
        self._buffer = bytearray(PIECE)

    def read(self, table: Any, begin: int, limit: int) -> int:
        """Read messages from `begin` on, before `limit`. Return the offset behind them."""
        segments, found = self._segments, self.found
        file_end = segments.start_of(begin) + segments.size
        wanted = min(limit, file_end) - begin
        while True:
            with memoryview(self._buffer) as view:
                got = segments.read_into(begin, view[:wanted])
            with ffi.from_buffer("char[]", self._buffer) as data:
                if lib.hs_dispatch_run(self._dispatch, table, data, got, begin, found) < 0:
                    raise MemoryError
            size = record_size(self._buffer)
            is_cut = found.used == 0 and found.why == lib.HS_FOUND_CUT
            if not (is_cut and len(self._buffer) < size <= wanted):
                break
            self._buffer = bytearray(size)
        return file_end if found.why == lib.HS_FOUND_BLANK else begin + int(found.used)


class Dispatcher:
    """Adds messages to queues and index; `position` is the first message not yet dispatched.

    A gap in queue offsets is an error, except in a rebuild.
    """

    def __init__(self, log: CommitLog, queues: ConsumeQueues, index: Index) -> None:
        self.position = log.begin
        self.timestamp = 0
        self._fills = False
        self.indexed_to = -1
        """Offset of the last message that the index already has."""
        self._log = log
        self._queues = queues
        self._index = index
        self._reader = DispatchReader(log.segments)
        self._end_of_piece: int | None = None
        """While a piece is written only in part, because the disk was full."""
        self._keys_done = 0
        self.lock = threading.Lock()

    def rebuild(self, begin: int, end: int) -> None:
        """Dispatch a range of the log again; close gaps in queue offsets with fillers."""
        self.position, self.indexed_to, self._end_of_piece = begin, -1, None
        self._fills = True
        self.run(end)
        self._fills = False

    def run(self, limit: int) -> None:
        """Dispatch everything before an offset; may be repeated. OSError, StoreDamagedError."""
        while self.position < limit:
            with self.lock:
                if self.position < limit:
                    self._dispatch_piece(limit)

    @property
    def is_settled(self) -> bool:
        """False while a piece is written only in part, because the disk was full."""
        return self._end_of_piece is None

    def _dispatch_piece(self, limit: int) -> None:
        """Write units and keys of a piece; the next call repeats it after a failure."""
        found = self._reader.found
        if self._end_of_piece is None:
            self._end_of_piece = self._reader.read(self._queues.table, self.position, limit)
            self._keys_done = self._count_known_keys()
        for number in range(found.run_count):
            run = found.runs[number]
            if run.first > 0 and not self._fills and self._queues.has_no_file(run.queue):
                raise GapError(
                    f"{self._location()}: units of its queue before {run.first} are missing"
                )
            units = ffi.buffer(run.units, run.count * lib.HS_UNIT)
            self._queues.write(run.queue, run.first, memoryview(units))
        while self._keys_done < found.key_count:
            done = self._keys_done
            self._keys_done += self._index.put(found.keys + done, found.key_count - done)
        self.position, self._end_of_piece = self._end_of_piece, None
        if found.count:
            self.timestamp = found.store_timestamp
        if found.why == lib.HS_DISPATCH_GAP:
            self._close_gap(found.record)
        elif found.why != lib.HS_FOUND_BLANK and (found.why != lib.HS_FOUND_CUT or found.used == 0):
            raise damage_error(self._log, self.position, found.why)

    def _count_known_keys(self) -> int:
        """Count the leading keys that the index already has."""
        found, known = self._reader.found, 0
        while known < found.key_count and found.keys[known].offset <= self.indexed_to:
            known += 1
        return known

    def _close_gap(self, record: Any) -> None:
        message = self._log.message(record.offset)
        if message is None:
            raise damage_error(self._log, record.offset, lib.HS_FOUND_BAD_SIZE)
        if not self._fills:
            raise GapError(
                f"{self._location()}: queue offset {message.queue_offset} of {message.topic}/"
                f"{message.queue_id} leaves a gap"
            )
        self._queues.continue_at(message.topic, message.queue_id, message.queue_offset)

    def _location(self) -> str:
        return self._log.segments.location(self.position)

    def state(self) -> Dispatched:
        """Return the state to record. The caller holds the lock and has checked `is_settled`."""
        last = self._index.last
        queues, units, first_units = self._queues.counts()
        return Dispatched(
            offset=self.position,
            queues=queues,
            units=units,
            first_units=first_units,
            index_files=len(self._index.files),
            index_file=last.path.name if last else "",
            index_header=last.raw_header.hex() if last else "",
        )
