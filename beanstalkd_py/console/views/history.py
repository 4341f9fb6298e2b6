"""Finished jobs of a history store."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from beanstalkd_py import errors
from beanstalkd_py.console.target import Target
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
    """Which messages to list, newest first. Times are seconds since 1970."""

    tube: str
    key: str = ""
    begin: float | None = None
    end: float | None = None
    event: str = ""
    before: int | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True)
class HistoryList:
    messages: Sequence[HistoryMessage]
    next: int | None


def open_store(target: Target) -> StoreReader:
    if target.history is None:
        raise errors.ToolUsageError("this console has no history store; give --history DIR")
    return StoreReader.open(target.history)


def topics(target: Target) -> list[HistoryTopic]:
    """Raises BeanstalkdError, OSError."""
    with open_store(target) as store:
        return [_topic(store, name, queues) for name, queues in store.topics().items()]


def _topic(store: StoreReader, name: str, queues: Sequence[int]) -> HistoryTopic:
    count, times = 0, []
    for queue_id in queues:
        low, high = store.bounds(name, queue_id)
        count += high - low
        queue = store.queues.get(name, queue_id)
        for number in (low, high - 1):
            if queue is not None and low < high:
                for _, unit in queue.units(number, number + 1):
                    stored = store.log.store_timestamp(unit.offset)
                    times += [] if stored is None else [stored / MS_PER_S]
    return HistoryTopic(
        unescape(name) or name, count, min(times, default=None), max(times, default=None)
    )


def messages(target: Target, query: HistoryQuery) -> HistoryList:
    """Return messages, newest first. Raises BeanstalkdError, OSError."""
    begin = 0 if query.begin is None else int(query.begin * MS_PER_S)
    end = ALWAYS if query.end is None else int(query.end * MS_PER_S)
    limit = max(1, min(query.limit, MOST_MESSAGES))
    page: list[Stored] = []
    with open_store(target) as store:
        end_mono = time.monotonic() + BUDGET_S
        topics = [escape(query.tube)] if query.tube else _topics(store)
        found = _with_key if query.key else _newest
        for message in found(store, topics, query, begin, end):
            if query.event not in ("", message.properties.get(TAGS, "")):
                if time.monotonic() < end_mono:
                    continue
                return _list_of(page, message.offset)
            if len(page) == limit:
                return _list_of(page, page[-1].offset)
            page.append(message)
    return _list_of(page, None)


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


def _newest(
    store: StoreReader, topics: Sequence[str], query: HistoryQuery, begin: int, end: int
) -> Iterator[Stored]:
    """Yield the messages below `query.before`. Reads only those that the caller takes."""
    wanted = frozenset(topics)
    queues = [queue for queue in store.queues if queue.topic in wanted]
    units = (_units_backwards(store, queue, query.before, begin, end) for queue in queues)
    for offset in heapq.merge(*units, reverse=True):
        message = store.message(offset)  # None if it is damaged, which the doctor reports
        if message is not None and begin <= message.store_timestamp <= end:
            yield message


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


def messages_of_job(target: Target, job: int) -> list[HistoryMessage]:
    """Return what the history has about a job, newest first; [] without a history."""
    if target.history is None:
        return []
    with open_store(target) as store:
        found = [one for name in store.topics() for one in store.query(name, str(job), limit=1)]
    return [HistoryMessage.of(one) for one in islice(sorted(found, key=_offset, reverse=True), 5)]


def _offset(message: Stored) -> int:
    return message.offset
