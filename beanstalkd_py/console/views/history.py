"""Finished jobs of a history store."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from beanstalkd_py import errors
from beanstalkd_py.console.target import Target
from beanstalkd_py.console.views.bodies import Body
from beanstalkd_py.history.message import KEYS, TAGS, Stored
from beanstalkd_py.history.queries.listing import messages_of_topic
from beanstalkd_py.history.queries.lookup import ALWAYS
from beanstalkd_py.history.reader import StoreReader
from beanstalkd_py.history.topics import escape, tube_of, unescape
from beanstalkd_py.history.verify import Fault

MS_PER_S = 1000
MOST_MESSAGES = 500


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


def _store(target: Target) -> StoreReader:
    if target.history is None:
        raise errors.ToolUsageError("this console has no history store; give --history DIR")
    return StoreReader.open(target.history)


def topics(target: Target) -> list[HistoryTopic]:
    """Raises BeanstalkdError, OSError."""
    with _store(target) as store:
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
    limit = min(query.limit, MOST_MESSAGES)
    with _store(target) as store:
        topic = escape(query.tube) if query.tube else ""
        if query.key:
            found = store.query(topic, query.key, begin, end, MOST_MESSAGES)
        else:
            found = _newest(store, topic, query, begin, end, limit + 1)
        matching = [
            one
            for one in found
            if query.event in ("", one.properties.get(TAGS, ""))
            and (query.before is None or one.offset < query.before)
        ]
        page = matching[:limit]
        following = page[-1].offset if len(matching) > limit else None
        return HistoryList([HistoryMessage.of(one) for one in page], following)


def _newest(
    store: StoreReader, topic: str, query: HistoryQuery, begin: int, end: int, count: int
) -> list[Stored]:
    def ignore(fault: Fault) -> None:
        """Damage is what `history verify` and the doctor report."""

    found: Iterator[Stored] = messages_of_topic(store, topic, ignore, 0, begin, end)
    wanted = (
        one
        for one in found
        if (query.before is None or one.offset < query.before)
        and query.event in ("", one.properties.get(TAGS, ""))
    )
    return heapq.nlargest(count, wanted, key=lambda one: one.offset)


def messages_of_job(target: Target, job: int) -> list[HistoryMessage]:
    """Return what the history has about a job, newest first; [] without a history."""
    if target.history is None:
        return []
    with _store(target) as store:
        found = [one for name in store.topics() for one in store.query(name, str(job), limit=1)]
    return [HistoryMessage.of(one) for one in islice(sorted(found, key=_offset, reverse=True), 5)]


def _offset(message: Stored) -> int:
    return message.offset
