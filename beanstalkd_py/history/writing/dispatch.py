"""Dispatch: add messages of the log to queues and index, some time after the append."""

from __future__ import annotations

import threading
from typing import Any

from beanstalkd_py.errors import StoreDamagedError
from beanstalkd_py.history._store import ffi, lib
from beanstalkd_py.history.files.commit_log import PIECE, CommitLog, damaged
from beanstalkd_py.history.files.consume_queue import ConsumeQueues
from beanstalkd_py.history.files.dispatched import Dispatched
from beanstalkd_py.history.files.index import Index


class GapError(StoreDamagedError):
    """A message's queue offset is not the next one, so units before it are missing."""


class Dispatcher:
    """Adds messages to queues and index; `position` is the first message not yet dispatched.

    With `fills`, a gap in queue offsets is closed with fillers; otherwise it is an error.
    """

    def __init__(
        self, log: CommitLog, queues: ConsumeQueues, index: Index, levels: tuple[int, ...]
    ) -> None:
        self.position = log.begin
        self.timestamp = 0
        self.fills = False
        self.indexed_to = -1
        """Offset of the last message that the index already has."""
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatch = ffi.gc(
            lib.hs_dispatch_new(ffi.new("int64_t[]", list(levels)), len(levels)),
            lib.hs_dispatch_free,
        )
        self._found = ffi.new("hs_dispatched *")
        self._buffer = bytearray(PIECE)
        self._pending = False
        self._grew = False
        self._keys_done = 0
        self.lock = threading.Lock()

    def restart(self, begin: int) -> None:
        """Dispatch everything again from an offset on."""
        self.position, self.indexed_to, self._pending = begin, -1, False

    def run(self, limit: int) -> None:
        """Dispatch everything before an offset; may be repeated. OSError, StoreDamagedError."""
        while self.position < limit:
            with self.lock:
                if self.position < limit:
                    self._step(limit)

    @property
    def is_settled(self) -> bool:
        """False while a piece is written only in part, because the disk was full."""
        return not self._pending

    def _step(self, limit: int) -> None:
        if not self._pending:
            self._find(limit)
        self._store()

    def _find(self, limit: int) -> None:
        segments = self._log.segments
        file_end = segments.start_of(self.position) + segments.size
        wanted = min(limit, file_end) - self.position
        with memoryview(self._buffer) as view:
            got = segments.read_into(self.position, view[:wanted])
        with ffi.from_buffer("char[]", self._buffer) as data:
            result = lib.hs_dispatch_run(
                self._dispatch, self._queues.table, data, got, self.position, self._found
            )
        if result < 0:
            raise MemoryError
        self._keys_done = self._keys_known()
        self._pending = True
        self._grew = (
            self._found.used == 0 and self._found.why == lib.HS_FOUND_CUT and self._grow(wanted)
        )

    def _grow(self, most: int) -> bool:
        """Enlarge the buffer for a long record."""
        size = int.from_bytes(self._buffer[:4], "big", signed=True)
        if not len(self._buffer) < size <= most:
            return False
        self._buffer = bytearray(size)
        return True

    def _keys_known(self) -> int:
        """Count the leading keys that the index already has."""
        found, known = self._found, 0
        while known < found.key_count and found.keys[known].offset <= self.indexed_to:
            known += 1
        return known

    def _store(self) -> None:
        """Write units and keys of the piece; the next call repeats it after a failure."""
        found: Any = self._found
        for number in range(found.run_count):
            run = found.runs[number]
            if run.first > 0 and not self.fills and self._queues.is_unknown(run.queue):
                raise GapError(
                    f"{self._place()}: units of its queue before {run.first} are missing"
                )
            units = ffi.buffer(run.units, run.count * lib.HS_UNIT)
            self._queues.write(run.queue, run.first, memoryview(units))
        while self._keys_done < found.key_count:
            done = self._keys_done
            self._keys_done += self._index.put(found.keys + done, found.key_count - done)
        self._pending = False
        if found.count:
            self.timestamp = found.store_timestamp
        self._advance()

    def _advance(self) -> None:
        """Move the position and handle the reason that ended the piece."""
        found, segments = self._found, self._log.segments
        self.position += found.used
        if found.why == lib.HS_FOUND_BLANK:
            self.position = segments.start_of(self.position) + segments.size
        elif found.why == lib.HS_DISPATCH_GAP:
            self._close_gap(found.record)
        elif found.why != lib.HS_FOUND_CUT or (found.used == 0 and not self._grew):
            raise damaged(self._log, self.position, found.why)

    def _close_gap(self, record: Any) -> None:
        message = self._log.message(record.offset)
        if message is None:
            raise damaged(self._log, record.offset, lib.HS_FOUND_BAD_SIZE)
        if not self.fills:
            raise GapError(
                f"{self._place()}: queue offset {message.queue_offset} of {message.topic}/"
                f"{message.queue_id} leaves a gap"
            )
        self._queues.expect(message.topic, message.queue_id, message.queue_offset)

    def _place(self) -> str:
        return self._log.segments.location(self.position)

    def state(self) -> Dispatched:
        """Return the state to record. The caller holds the lock and has checked `is_settled`."""
        last = self._index.last
        return Dispatched(
            offset=self.position,
            queues=sum(1 for queue in self._queues if queue.end > 0),
            units=self._queues.units(),
            first_units=self._queues.first_units(),
            index_files=len(self._index.files),
            index_file=last.path.name if last else "",
            index_header=last.raw_header.hex() if last else "",
        )
