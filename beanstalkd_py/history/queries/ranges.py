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
from beanstalkd_py.history.files.checkpoint import Dispatched
from beanstalkd_py.history.files.consume_queue import ConsumeQueue
from beanstalkd_py.history.message import Stored
from beanstalkd_py.history.options import load_sizes
from beanstalkd_py.history.queries import listing
from beanstalkd_py.history.queries.lookup import ALWAYS, ReadableStore


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
    report: listing.ReportFault
    begin: int = 0
    end: int = ALWAYS
    offset: int = 0
    log_end: int = ALWAYS

    def count(self) -> int:
        """Count the items, missing messages included."""
        dispatched = self._refresh_queues()
        queues = (self._bounds(queue) for queue in self._queues())
        in_queues = sum(max(high - low, 0) for low, high in queues)
        return in_queues + sum(1 for _ in self._pending(dispatched))

    def __iter__(self) -> Iterator[RangeItem]:
        """Yield the items in log order; damaged messages are reported."""
        dispatched = self._refresh_queues()
        items = [self._items_of_queue(queue) for queue in self._queues()]
        return heapq.merge(*items, self._pending(dispatched), key=lambda item: item.offset)

    def _queues(self) -> list[ConsumeQueue]:
        return [queue for queue in self.store.queues if queue.topic == self.topic]

    def _bounds(self, queue: ConsumeQueue) -> tuple[int, int]:
        low = queue.find_from(max(self.offset, self.store.log.begin))
        high = queue.find_from(self.log_end)
        return listing.stored_between(self.store, queue, low, high, self.begin, self.end)

    def _items_of_queue(self, queue: ConsumeQueue) -> Iterator[RangeItem]:
        for number, unit in queue.units(*self._bounds(queue)):
            message = listing.message_of_unit(self.store, queue, number, unit, self.report)
            if message is None:
                is_gone = unit.offset < listing.current_log_begin(self.store)
                state = MessageState.EXPIRED if is_gone else MessageState.DAMAGED
                yield RangeItem(unit.offset, None, state)
            elif self.begin <= message.store_timestamp <= self.end:
                yield RangeItem(unit.offset, message)

    def _pending(self, dispatched: int) -> Iterator[RangeItem]:
        """Yield messages of the log that no queue has yet."""
        last_units = {queue.queue_id: queue.last() for queue in self._queues()}
        known = {queue_id: unit.offset for queue_id, unit in last_units.items() if unit}
        for message in listing.messages_of_log(
            self.store, self.report, max(dispatched, self.store.log.begin)
        ):
            if message.offset >= self.log_end:
                return
            if (
                message.topic == self.topic
                and listing.has_queue_unit(message)
                and message.offset > known.get(message.queue_id, -1)
                and message.offset >= self.offset
                and self.begin <= message.store_timestamp <= self.end
            ):
                yield RangeItem(message.offset, message)

    def _refresh_queues(self) -> int:
        """Read the ends of the topic's queues again, because a writer may have added units.

        Returns a log offset before which these queues are complete.
        """
        reached = self._recorded_end()  # before the ends, so that these are not behind
        for queue in self._queues():
            queue.segments.refresh()
            queue.end = queue.find_end(self.store.log.end)
        return min(reached, self.store.log.end)

    def _recorded_end(self) -> int:
        recorded = Dispatched.load(self.store.folder / layout.DISPATCHED)
        if recorded is not None:
            return recorded.offset
        if load_sizes(self.store.folder) is not None:
            return 0
        # RocketMQ dispatches messages one after another.
        units = (queue.last() for queue in self.store.queues)
        return max((unit.offset + unit.size for unit in units if unit), default=0)
