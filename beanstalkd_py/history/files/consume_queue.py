"""Consume queues: the positions of a queue's messages in the log, for each topic and queue id.

A unit has 20 bytes: offset, size and tag code. The unit with queue offset N begins at byte 20 * N,
so bisection finds the end of a queue.
"""

from __future__ import annotations

import shutil
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beanstalkd_py import symlinks
from beanstalkd_py.history._store import ffi, lib
from beanstalkd_py.history.files import layout
from beanstalkd_py.history.files.open_files import Descriptors
from beanstalkd_py.history.files.segments import Segments

UNIT = lib.HS_UNIT
UNIT_FIELDS = struct.Struct(">qiq")
FILLER = UNIT_FIELDS.pack(0, 2**31 - 1, 0)
"""The unit of a queue offset that no message has."""
FILLER_SIZE = 2**31 - 1
LEAST_TAG_CODE = -(2**31)
UNITS_AT_ONCE = 512
FIRST_UNITS = 32
EVERYTHING = 2**63 - 1
"""A log offset behind every message."""


@dataclass(frozen=True, slots=True)
class Unit:
    """The position of a message: `offset` and `size` in the log, bytes."""

    offset: int
    size: int
    tag_code: int

    @property
    def is_filler(self) -> bool:
        return self.size == FILLER_SIZE

    @property
    def has_tag_code(self) -> bool:
        """False if the code refers to RocketMQ's consumequeue_ext, which this package ignores."""
        return self.tag_code >= LEAST_TAG_CODE


def set_next(table: Any, topic: str, queue_id: int, next_offset: int) -> None:
    name = topic.encode("utf-8", "surrogateescape")
    if lib.hs_queues_set(table, name, len(name), queue_id, next_offset) < 0:
        raise MemoryError


def queue_name(table: Any, number: int) -> tuple[str, int]:
    """Return topic and queue id of the queue with this number in a C table."""
    name = ffi.new("hs_queue_name *")
    lib.hs_queues_name(table, number, name)
    topic = bytes(ffi.buffer(name.topic, name.topic_length))
    return topic.decode("utf-8", "surrogateescape"), int(name.queue_id)


class ConsumeQueue:
    """One queue. `end` is the queue offset of the next message. Methods raise OSError."""

    def __init__(
        self, root: Path, topic: str, queue_id: int, units: int, files: Descriptors
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.segments = Segments(root / topic / str(queue_id), units * UNIT, files, sparse=True)
        self.end = 0

    @property
    def first(self) -> int:
        return self.segments.begin // UNIT

    def read(self, first: int, count: int) -> list[Unit]:
        """Return up to `count` units from a queue offset on, before `end`."""
        data = self.read_bytes(first, min(count, self.end - first))
        return [Unit(*fields) for fields in UNIT_FIELDS.iter_unpack(data)]

    def read_bytes(self, first: int, count: int) -> bytes:
        """Return the bytes of up to `count` units from a queue offset on, also behind `end`."""
        position, length = first * UNIT, count * UNIT
        data = b""
        while len(data) < length:
            piece = self.segments.read(position + len(data), length - len(data))
            if not piece:
                break
            data += piece
        return data[: len(data) - len(data) % UNIT]

    def unit(self, number: int) -> Unit | None:
        """Return one unit, also an invalid one or one behind `end`; None if no file has it."""
        data = self.segments.read(number * UNIT, UNIT)
        return Unit(*UNIT_FIELDS.unpack(data)) if len(data) == UNIT else None

    def last(self) -> Unit | None:
        """Return the last unit; None if there is none or it is a filler."""
        unit = self.unit(self.end - 1) if self.end > self.first else None
        return None if unit is None or unit.is_filler else unit

    def units(self, low: int, high: int) -> Iterator[tuple[int, Unit]]:
        """Yield the units of low..high before `end` without fillers, each with its queue offset."""
        while low < high and (units := self.read(low, min(high - low, UNITS_AT_ONCE))):
            for number, unit in enumerate(units, low):
                if not unit.is_filler:
                    yield number, unit
            low += len(units)

    def bisect(self, low: int, high: int, is_before: Callable[[Unit], bool]) -> int:
        """Return the first queue offset in low..high for whose unit `is_before` is false."""
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit is not None and is_before(unit):
                low = middle + 1
            else:
                high = middle
        return low

    def find_end(self, log_offset: int = EVERYTHING) -> int:
        """Return the queue offset behind the last unit for a message before a log offset.

        Units are in the order of the log, so those written before some moment are a prefix.
        """

        def is_before(unit: Unit) -> bool:
            return unit.size > 0 and 0 <= unit.offset < log_offset

        # Most queues of a store with many are short, and a bisection reads each unit on its own.
        data = self.read_bytes(self.first, FIRST_UNITS)
        for number, fields in enumerate(UNIT_FIELDS.iter_unpack(data), self.first):
            if not is_before(Unit(*fields)):
                return number
        return self.bisect(self.first + len(data) // UNIT, self.segments.end // UNIT, is_before)

    def find_from(self, log_offset: int) -> int:
        """Return the queue offset of the first message from a log offset on, or `end`.

        Fillers count as earlier messages.
        """
        return self.bisect(
            self.first, self.end, lambda unit: unit.is_filler or unit.offset < log_offset
        )

    def write(self, first: int, units: bytes | memoryview) -> None:
        """Write units from a queue offset on and move the end behind them."""
        if not self.segments.starts and first > 0:
            self.segments.create(self.segments.start_of(first * UNIT))
            self.end = self.first
        if first > self.end:
            self.fill(first)
        view, at = memoryview(units), first * UNIT
        while len(view) > 0:
            start = self.segments.start_of(at)
            if start not in self.segments.starts:
                self.segments.create(start)
            piece = view[: start + self.segments.size - at]
            self.segments.write(at, piece)
            view, at = view[len(piece) :], at + len(piece)
        self.end = max(self.end, at // UNIT)

    def fill(self, until: int) -> None:
        while self.end < until:
            count = min(until - self.end, self.segments.size // UNIT)
            self.write(self.end, FILLER * count)

    def cut(self, end: int) -> None:
        """Overwrite the units from a queue offset on with zeros."""
        self.segments.cut(end * UNIT)
        self.end = end


class ConsumeQueues:
    """All queues of a store, by name and by their number in the C table."""

    def __init__(self, store: Path, units: int, files: Descriptors) -> None:
        self.root = store / layout.CONSUME_QUEUE
        self.table = ffi.gc(lib.hs_queues_new(), lib.hs_queues_free)
        self._units = units
        self._files = files
        self._by_name: dict[tuple[str, int], ConsumeQueue] = {}
        self._by_number: list[ConsumeQueue] = []
        self._dirty: set[ConsumeQueue] = set()
        self._not_rebuilt: set[ConsumeQueue] = set()
        self._lock = threading.Lock()
        for topic, queue_id in layout.queue_folders(store):
            self._by_name[topic, queue_id] = self._open(topic, queue_id)

    def _open(self, topic: str, queue_id: int) -> ConsumeQueue:
        return ConsumeQueue(self.root, topic, queue_id, self._units, self._files)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._by_name.get((topic, queue_id))

    def counts(self) -> tuple[int, int, int]:
        """Return the number of queues with units, and the sums of their ends and first offsets.

        They change when a file of units is lost.
        """
        queues = [queue for queue in self if queue.end > 0]
        return len(queues), sum(each.end for each in queues), sum(each.first for each in queues)

    def add_to(self, table: Any) -> None:
        for queue in self:
            set_next(table, queue.topic, queue.queue_id, queue.end)

    def continue_at(self, topic: str, queue_id: int, next_offset: int) -> None:
        """Continue the queue at `next_offset`; fillers replace the missing units."""
        queue = self._by_name[topic, queue_id]
        queue.fill(next_offset)
        self._add_dirty(queue)
        set_next(self.table, topic, queue_id, queue.end)

    def write(self, number: int, first: int, units: bytes | memoryview) -> None:
        """Write units of the queue with this number in the C table."""
        queue = self.numbered(number)
        if queue in self._not_rebuilt:
            self._empty(queue)
        queue.write(first, units)
        self._add_dirty(queue)

    def _add_dirty(self, queue: ConsumeQueue) -> None:
        with self._lock:
            self._dirty.add(queue)

    def numbered(self, number: int) -> ConsumeQueue:
        """Return the queue with this number in the C table."""
        while len(self._by_number) <= number:
            name = queue_name(self.table, len(self._by_number))
            if name not in self._by_name:
                self._by_name[name] = self._open(*name)
            self._by_number.append(self._by_name[name])
        return self._by_number[number]

    def sync(self) -> None:
        """Sync all units written before the call."""
        with self._lock:
            dirty, self._dirty = self._dirty, set()
        for queue in dirty:
            queue.segments.sync()

    def rebuild(self) -> None:
        """Start with an empty C table; the first write to a queue will empty it."""
        self.table = ffi.gc(lib.hs_queues_new(), lib.hs_queues_free)
        self._by_number = []
        self._not_rebuilt = set(self)

    def end_rebuild(self) -> None:
        """Keep the queues that were not rebuilt, because the log has none of their messages."""
        for queue in self._not_rebuilt:
            set_next(self.table, queue.topic, queue.queue_id, queue.end)
        self._not_rebuilt = set()

    def has_no_file(self, number: int) -> bool:
        return not self.numbered(number).segments.starts

    def _empty(self, queue: ConsumeQueue) -> None:
        self._not_rebuilt.discard(queue)
        queue.segments.remove_all()  # without a sync for each of many queues; they are made again
        queue.end = 0

    def drop_empty(self) -> None:
        """Remove queues without units, before `add_to` numbers the others."""
        for queue in self:
            if queue.end == 0:
                self._empty(queue)
                with symlinks.parent_of(queue.segments.folder) as at:
                    shutil.rmtree(queue.segments.folder.name, dir_fd=at)
                del self._by_name[queue.topic, queue.queue_id]
