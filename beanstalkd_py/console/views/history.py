"""Finished jobs of a history store."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gevent import get_hub
from gevent.threadpool import ThreadPool

from beanstalkd_py import errors
from beanstalkd_py.console.target import Target
from beanstalkd_py.console.threads import call_in_thread, error_of
from beanstalkd_py.console.views.bodies import Body
from beanstalkd_py.history.files.compatibility import LIGHT_QUEUE
from beanstalkd_py.history.files.consume_queue import ConsumeQueue
from beanstalkd_py.history.message import KEYS, TAGS, Stored
from beanstalkd_py.history.queries.listing import stored_between
from beanstalkd_py.history.queries.lookup import ALWAYS
from beanstalkd_py.history.reader import StoreReader
from beanstalkd_py.history.topics import escape, tube_of, unescape

MS_PER_S = 1000
MOST_MESSAGES = 500
JOB_MESSAGES = 5
BUDGET_S = 0.15
"""A filtered page ends after this time, even if it has fewer messages than asked for."""
FIRST_UNITS = 4
MOST_UNITS = 512
"""Units of a queue that are read at once: first few, because most queues have none of the page."""


@dataclass(frozen=True, slots=True)
class HistoryMessage:
    """A finished job. `stored` is seconds since 1970; `event` is how it ended."""

    offset: int
    stored: float
    tube: str
    key: str
    event: str
    properties: Mapping[str, str]
    body: Body

    @classmethod
    def of(cls, message: Stored) -> HistoryMessage:
        properties = message.properties
        return cls(
            *(message.offset, message.store_timestamp / MS_PER_S, tube_of(message)),
            *(properties.get(KEYS, ""), properties.get(TAGS, ""), properties),
            Body.of(message.body),
        )


@dataclass(frozen=True, slots=True)
class HistoryTopic:
    tube: str
    messages: int
    first: float | None
    last: float | None


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """Which messages to list, newest first. Times are seconds since 1970; `body` is text in it.

    It is no regular expression: one of a viewer could keep the console busy for ever.
    """

    tube: str
    key: str = ""
    begin: float | None = None
    end: float | None = None
    event: str = ""
    body: str = ""
    before: int | None = None
    limit: int = 100

    def matches(self, message: Stored) -> bool:
        """Check what no index has."""
        if self.event not in ("", message.properties.get(TAGS, "")):
            return False
        return self.body.encode() in message.body


@dataclass(frozen=True, slots=True)
class HistoryList:
    messages: Sequence[HistoryMessage]
    next: int | None


@dataclass(frozen=True, slots=True)
class _QueueSummary:
    """What a queue had when the log began at `begin` and the queue ended at `end`.

    Times are seconds since 1970. `last` is the log offset of the last message, or a later one.
    """

    begin: int
    end: int
    count: int
    times: Sequence[float]
    last: int

    def may_have(self, begin: int, end: int) -> bool:
        """Return whether the queue can have messages of begin..end (milliseconds)."""
        if len(self.times) < 2:
            return self.count > 0
        return begin / MS_PER_S <= self.times[1] and self.times[0] <= end / MS_PER_S

    @classmethod
    def of(cls, store: StoreReader, queue: ConsumeQueue) -> _QueueSummary:
        low, high = store.bounds(queue.topic, queue.queue_id)
        times, last = [], store.log.end
        for number in (low, high - 1):
            for _, unit in queue.units(number, number + 1) if low < high else ():
                stored, last = store.log.store_timestamp(unit.offset), unit.offset
                times += [] if stored is None else [stored / MS_PER_S]
        return cls(store.log.begin, queue.end, high - low, times, last)


class History:
    """The store of one server. It stays open between requests: an open takes 0.1 ms per tube.

    Its methods run in a thread, one after another, so that other requests are answered meanwhile.
    They raise BeanstalkdError or OSError.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._thread = ThreadPool(1)
        self._store: StoreReader | None = None
        self._summaries: dict[tuple[str, int], _QueueSummary] = {}

    def topics(self) -> Sequence[HistoryTopic]:
        return call_in_thread(self._thread, self._find_topics)

    def messages(self, query: HistoryQuery) -> HistoryList:
        """Return messages, newest first."""
        return call_in_thread(self._thread, lambda: self._find_messages(query))

    def messages_of_job(self, job: int) -> Sequence[HistoryMessage]:
        """Return what the history has about a job, newest first; [] without a history."""
        if self._folder is None:
            return []
        return call_in_thread(self._thread, lambda: self._find_messages_of_job(job))

    def prepare(self) -> None:
        """Open the store before a request needs it, which gets the error, if there is one."""
        if self._folder is not None and self._store is None:
            self._thread.spawn(error_of, self._find_topics)

    def _opened(self) -> StoreReader:
        if self._folder is None:
            raise errors.ToolUsageError("this console has no history store; give --history DIR")
        store, self._store = self._store, None  # an error opens it again
        if store is None:
            store = StoreReader.open(self._folder)
        else:
            store.advance()
        self._store = store
        return store

    def _summary(self, store: StoreReader, queue: ConsumeQueue) -> _QueueSummary:
        name = queue.topic, queue.queue_id
        found = self._summaries.get(name)
        if found is None or (found.begin, found.end) != (store.log.begin, queue.end):
            found = self._summaries[name] = _QueueSummary.of(store, queue)
        return found

    def _find_topics(self) -> Sequence[HistoryTopic]:
        store = self._opened()
        topics: dict[str, list[_QueueSummary]] = {}
        for queue in store.queues:
            topics.setdefault(queue.topic, []).append(self._summary(store, queue))
        return [_topic(name, topics[name]) for name in sorted(topics)]

    def _find_messages(self, query: HistoryQuery) -> HistoryList:
        begin = 0 if query.begin is None else int(query.begin * MS_PER_S)
        end = ALWAYS if query.end is None else int(query.end * MS_PER_S)
        limit = max(1, min(query.limit, MOST_MESSAGES))
        page: list[Stored] = []
        store = self._opened()
        end_mono = time.monotonic() + BUDGET_S
        topics = [escape(query.tube)] if query.tube else _topics(store)
        found = _with_key if query.key else self._newest
        for message in found(store, topics, query, begin, end):
            if not query.matches(message):
                if time.monotonic() < end_mono:
                    continue
                return _list_of(page, message.offset)
            if len(page) == limit:
                return _list_of(page, page[-1].offset)
            page.append(message)
        return _list_of(page, None)

    def _newest(
        self, store: StoreReader, topics: Sequence[str], query: HistoryQuery, begin: int, end: int
    ) -> Iterator[Stored]:
        """Yield the messages below `query.before`. Reads only those that the caller takes.

        A queue is read when no other one can have a newer message.
        """
        wanted = frozenset(topics)
        before = store.log.end if query.before is None else query.before
        newest: list[tuple[int, int, Iterator[int] | None]] = []
        queues = [queue for queue in store.queues if queue.topic in wanted]
        for number, queue in enumerate(queues):
            summary = self._summary(store, queue)
            if summary.may_have(begin, end):
                newest.append((-min(summary.last, before - 1), number, None))
        heapq.heapify(newest)
        while newest:
            key, number, units = heapq.heappop(newest)
            if units is None:
                units = _units_backwards(store, queues[number], query.before, begin, end)
            else:
                message = store.message(-key)  # None if it is damaged, which the doctor reports
                if message is not None and begin <= message.store_timestamp <= end:
                    yield message
            if (offset := next(units, None)) is not None:
                heapq.heappush(newest, (-offset, number, units))

    def _find_messages_of_job(self, job: int) -> Sequence[HistoryMessage]:
        store = self._opened()
        found = [one for name in store.topics() for one in store.query(name, str(job), limit=1)]
        newest = sorted(found, key=_offset, reverse=True)[:JOB_MESSAGES]
        return [HistoryMessage.of(one) for one in newest]


def open_store(target: Target) -> StoreReader:
    """Open the store for an operation, in a thread. Raises BeanstalkdError, OSError."""
    if target.history is None:
        raise errors.ToolUsageError("this console has no history store; give --history DIR")
    folder = target.history
    return call_in_thread(get_hub().threadpool, lambda: StoreReader.open(folder))


def _topic(name: str, queues: Sequence[_QueueSummary]) -> HistoryTopic:
    times = [one for queue in queues for one in queue.times]
    count = sum(queue.count for queue in queues)
    return HistoryTopic(
        unescape(name) or name, count, min(times, default=None), max(times, default=None)
    )


def _list_of(page: list[Stored], following: int | None) -> HistoryList:
    return HistoryList([HistoryMessage.of(one) for one in page], following)


def _topics(store: StoreReader) -> list[str]:
    # Messages of a light queue are in other queues, too.
    return [name for name in store.topics() if not name.startswith(LIGHT_QUEUE)]


def _with_key(
    store: StoreReader, topics: Sequence[str], query: HistoryQuery, begin: int, end: int
) -> list[Stored]:
    found = [
        one
        for topic in topics
        for one in store.query(topic, query.key, begin, end, MOST_MESSAGES)
        if query.before is None or one.offset < query.before
    ]
    return sorted(found, key=_offset, reverse=True)


def _units_backwards(
    store: StoreReader, queue: ConsumeQueue, before: int | None, begin: int, end: int
) -> Iterator[int]:
    """Yield the log offsets of the messages of a queue, newest first."""
    low, high = store.bounds(queue.topic, queue.queue_id)
    low, high = stored_between(store, queue, low, high, begin, end)
    if before is not None:
        high = min(high, queue.find_from(before))
    count = FIRST_UNITS
    while low < high:
        first = max(low, high - count)
        offsets = [unit.offset for _, unit in queue.units(first, high)]
        yield from reversed(offsets)
        high, count = first, min(count * 2, MOST_UNITS)


def _offset(message: Stored) -> int:
    return message.offset
