"""A reproducible part of a topic, bounded by times and log offsets.

The log end is part of the range, so reading it again later returns the same messages, except
expired ones. Messages in the log that no queue has yet belong to the range.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from beanstalkd_py.history.files import layout
from beanstalkd_py.history.files.consume_queue import ConsumeQueue
from beanstalkd_py.history.files.dispatched import Dispatched
from beanstalkd_py.history.message import Stored
from beanstalkd_py.history.options import load_sizes
from beanstalkd_py.history.queries.listing import (
    ReportFault,
    current_log_begin,
    has_queue_unit,
    message_of_unit,
    messages_of_log,
)
from beanstalkd_py.history.queries.lookup import ALWAYS, UNITS_AT_ONCE, ReadableStore


class MessageState(enum.Enum):
    FOUND = "found"
    DAMAGED = "damaged"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class RangeItem:
    """A message of a range, or the offset where a message is missing."""

    offset: int
    message: Stored | None
    state: MessageState = MessageState.FOUND


@dataclass(frozen=True, slots=True)
class MessageRange:
    """Messages of all queues of a topic, stored at begin..end (milliseconds, both included).

    `offset` (included) and `log_end` (excluded) bound it in the log. Methods raise OSError.
    """

    store: ReadableStore
    topic: str
    report: ReportFault
    begin: int = 0
    end: int = ALWAYS
    offset: int = 0
    log_end: int = ALWAYS

    def count(self) -> int:
        """Count the items, missing messages included."""
        dispatched = self._dispatched()
        queues = (self._bounds(queue) for queue in self._queues())
        in_queues = sum(max(high - low, 0) for low, high in queues)
        return in_queues + sum(1 for _ in self._pending(dispatched))

    def __iter__(self) -> Iterator[RangeItem]:
        """Yield the items in log order; damaged messages are reported."""
        dispatched = self._dispatched()
        rows = [self._of_queue(queue) for queue in self._queues()]
        return heapq.merge(*rows, self._pending(dispatched), key=lambda found: found.offset)

    def _queues(self) -> list[ConsumeQueue]:
        return [queue for queue in self.store.queues if queue.topic == self.topic]

    def _bounds(self, queue: ConsumeQueue) -> tuple[int, int]:
        """Return the range of queue offsets."""
        first = max(self.offset, self.store.log.begin)
        low = queue.bisect(
            queue.first, queue.end, lambda unit: unit.is_filler or unit.offset < first
        )
        high = queue.bisect(
            low, queue.end, lambda unit: unit.is_filler or unit.offset < self.log_end
        )
        if self.begin > 0:
            low = max(low, self.store.find_time(queue.topic, queue.queue_id, self.begin))
        if self.end < ALWAYS:
            last = self.store.find_time(queue.topic, queue.queue_id, self.end, last=True)
            high = min(high, last + 1)
        return low, high

    def _of_queue(self, queue: ConsumeQueue) -> Iterator[RangeItem]:
        at, high = self._bounds(queue)
        while at < high:
            units = queue.read(at, min(high - at, UNITS_AT_ONCE))
            if not units:
                return
            for number, unit in enumerate(units, at):
                if unit.is_filler:
                    continue
                message = message_of_unit(self.store, queue, number, unit, self.report)
                if message is None:
                    is_gone = unit.offset < current_log_begin(self.store)
                    yield RangeItem(
                        unit.offset, None, MessageState.EXPIRED if is_gone else MessageState.DAMAGED
                    )
                elif self.begin <= message.store_timestamp <= self.end:
                    yield RangeItem(unit.offset, message)
            at += len(units)

    def _pending(self, dispatched: int) -> Iterator[RangeItem]:
        """Yield messages of the log that no queue has yet."""
        known: dict[int, int] = {}
        for queue in self._queues():
            unit = queue.unit(queue.end - 1) if queue.end > queue.first else None
            known[queue.queue_id] = -1 if unit is None or unit.is_filler else unit.offset
        for message in messages_of_log(
            self.store, self.report, max(dispatched, self.store.log.begin)
        ):
            if message.offset >= self.log_end:
                return
            if (
                message.topic == self.topic
                and has_queue_unit(message)
                and message.offset > known.get(message.queue_id, -1)
                and message.offset >= self.offset
                and self.begin <= message.store_timestamp <= self.end
            ):
                yield RangeItem(message.offset, message)

    def _dispatched(self) -> int:
        """Return a log offset before which the topic's queues are complete.

        The queues' ends are read again afterwards, because a writer may have added units meanwhile.
        """
        reached = self._recorded_end()
        for queue in self._queues():
            queue.segments.refresh()
            queue.end = queue.find_end(self.store.log.end)
        return min(reached, self.store.log.end)

    def _recorded_end(self) -> int:
        noted = Dispatched.load(self.store.folder / layout.DISPATCHED)
        if noted is not None:
            return noted.offset
        if load_sizes(self.store.folder) is not None:
            return 0
        # RocketMQ dispatches messages one after another.
        reached = 0
        for queue in self.store.queues:
            unit = queue.unit(queue.end - 1) if queue.end > queue.first else None
            if unit is not None and not unit.is_filler:
                reached = max(reached, unit.offset + unit.size)
        return reached
