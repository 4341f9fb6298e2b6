"""A part of a topic, between two times and two offsets of the log, to be gone through in order.

Whoever comes back later gets the same messages, but for those that have expired meanwhile, because
where the log ends is said. Messages that are in the log and not yet in a queue belong to it, too.
It must not change a file, nor know what messages are wanted for.
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
    """What became of a message."""

    FOUND = "found"
    DAMAGED = "damaged"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class RangeItem:
    """A place of a queue: the offset of its message in the log, and the message if it is there."""

    offset: int
    message: Stored | None
    state: MessageState = MessageState.FOUND


@dataclass(frozen=True, slots=True)
class MessageRange:
    """Messages of all queues of a topic, stored at begin..end (milliseconds, both included).

    `offset` and `log_end` bound it in the log; the latter is excluded. Methods raise OSError.
    """

    store: ReadableStore
    topic: str
    report: ReportFault
    begin: int = 0
    end: int = ALWAYS
    offset: int = 0
    log_end: int = ALWAYS

    def count(self) -> int:
        """How many there are; places that no message has any more are counted, too."""
        dispatched = self._dispatched()
        queues = (self._bounds(queue) for queue in self._queues())
        in_queues = sum(max(high - low, 0) for low, high in queues)
        return in_queues + sum(1 for _ in self._pending(dispatched))

    def __iter__(self) -> Iterator[RangeItem]:
        """All of them, in the order of the log. What is damaged is told."""
        dispatched = self._dispatched()
        rows = [self._of_queue(queue) for queue in self._queues()]
        return heapq.merge(*rows, self._pending(dispatched), key=lambda found: found.offset)

    def _queues(self) -> list[ConsumeQueue]:
        return [queue for queue in self.store.queues if queue.topic == self.topic]

    def _bounds(self, queue: ConsumeQueue) -> tuple[int, int]:
        """Queue offsets from..to."""
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
        """What the log has and queues do not have yet."""
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
        """An offset of the log before which the topic's queues lack nothing.

        Their ends are looked for again afterwards: a writer may have gone on since they were.
        """
        reached = self._said_to_be_dispatched()
        for queue in self._queues():
            queue.segments.refresh()
            queue.end = queue.find_end(self.store.log.end)
        return min(reached, self.store.log.end)

    def _said_to_be_dispatched(self) -> int:
        noted = Dispatched.load(self.store.folder / layout.DISPATCHED)
        if noted is not None:
            return noted.offset
        if load_sizes(self.store.folder) is not None:
            return 0
        # RocketMQ dispatches one message after the other.
        reached = 0
        for queue in self.store.queues:
            unit = queue.unit(queue.end - 1) if queue.end > queue.first else None
            if unit is not None and not unit.is_filler:
                reached = max(reached, unit.offset + unit.size)
        return reached
