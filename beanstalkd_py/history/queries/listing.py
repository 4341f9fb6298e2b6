"""Messages in log order: of a topic, of the whole log, or the last ones.

A damaged message is reported to a callback and skipped.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain

from beanstalkd_py.history.files import layout
from beanstalkd_py.history.files.commit_log import FAULTS, LogWalk
from beanstalkd_py.history.files.compatibility import LIGHT_QUEUE
from beanstalkd_py.history.files.consume_queue import UNIT, ConsumeQueue, Unit
from beanstalkd_py.history.message import PREPARED, ROLLBACK, TRANSACTION, Stored
from beanstalkd_py.history.queries.lookup import ALWAYS, ReadableStore
from beanstalkd_py.history.verify import Fault

ReportFault = Callable[[Fault], None]


def has_queue_unit(message: Stored) -> bool:
    """Return False for prepared and rolled-back transactions, which are only in the log."""
    return message.sys_flag & TRANSACTION not in (PREPARED, ROLLBACK)


def messages_of_topic(
    store: ReadableStore,
    topic: str,
    report: ReportFault,
    first: int = 0,
    begin: int = 0,
    end: int = ALWAYS,
) -> Iterator[Stored]:
    """Yield messages of all queues of a topic, stored at begin..end (milliseconds).

    `first` is the first queue offset in each queue. Raises OSError.
    """
    queues = [queue for queue in store.queues if queue.topic == topic]
    messages = [_messages_of_queue(store, queue, report, first, begin, end) for queue in queues]
    return heapq.merge(*messages, key=lambda message: message.offset)


def _messages_of_queue(
    store: ReadableStore, queue: ConsumeQueue, report: ReportFault, first: int, begin: int, end: int
) -> Iterator[Stored]:
    low, high = store.bounds(queue.topic, queue.queue_id)
    low, high = stored_between(store, queue, max(low, first), high, begin, end)
    for number, unit in queue.units(low, high):
        message = message_of_unit(store, queue, number, unit, report)
        if message is not None and begin <= message.store_timestamp <= end:
            yield message


def stored_between(
    store: ReadableStore, queue: ConsumeQueue, low: int, high: int, begin: int, end: int
) -> tuple[int, int]:
    """Return the queue offsets of low..high whose messages were stored at begin..end."""
    if begin > 0:
        low = max(low, store.find_time(queue.topic, queue.queue_id, begin))
    if end < ALWAYS:
        high = min(high, store.find_time(queue.topic, queue.queue_id, end, last=True) + 1)
    return low, high


def message_of_unit(
    store: ReadableStore, queue: ConsumeQueue, number: int, unit: Unit, report: ReportFault
) -> Stored | None:
    """Return the message of a unit; None for an expired or a damaged one, which is reported."""
    message = store.message(unit.offset)
    if message is None and unit.offset >= current_log_begin(store):
        what = f"leads to {unit.offset}, where no sound message is"
        report(Fault.at(queue.segments, number * UNIT, what))
    return message


def current_log_begin(store: ReadableStore) -> int:
    """Return the first offset on disk: files that the writer has removed meanwhile are no fault."""
    return min(layout.segment_starts(store.log.segments.folder), default=store.log.end)


def messages_of_log(
    store: ReadableStore, report: ReportFault, begin: int | None = None
) -> Iterator[Stored]:
    """Yield all messages from the start of a message on. Raises OSError.

    After a damaged one, continue with the next message that a queue refers to.
    """
    log = store.log
    at = log.begin if begin is None else begin
    while at < log.end:
        walk = LogWalk(log, at, log.checks)
        yield from walk.messages(log.end)
        if walk.offset >= log.end:
            return
        report(Fault.at(log.segments, walk.offset, FAULTS[walk.stop_reason]))
        at = _next_known(store, walk.offset)


def _next_known(store: ReadableStore, bad: int) -> int:
    """Return the next message that a queue refers to, or the start of the next file."""
    segments = store.log.segments
    nearest = min((start for start in segments.starts if start > bad), default=store.log.end)
    for queue in store.queues:
        number = queue.find_from(bad + 1)
        unit = queue.unit(number) if number < queue.end else None
        if unit is not None and unit.offset > bad:
            nearest = min(nearest, unit.offset)
    return nearest


def last_messages(
    store: ReadableStore, count: int, report: ReportFault, topic: str | None = None
) -> list[Stored]:
    """Return the last messages, oldest first, pending ones included. Raises OSError."""
    latest: list[tuple[int, ConsumeQueue, int, Unit]] = []
    dispatched = store.log.begin
    for queue in store.queues:
        if queue.topic.startswith(LIGHT_QUEUE) and topic != queue.topic:
            continue  # its messages are also in other queues
        begin, end = store.bounds(queue.topic, queue.queue_id)
        first = max(begin, end - max(count, 1))
        units = [(unit.offset, queue, number, unit) for number, unit in queue.units(first, end)]
        dispatched = max([dispatched, *(unit.offset + unit.size for *_, unit in units)])
        if topic in (None, queue.topic):
            latest = heapq.nlargest(count, [*latest, *units], key=lambda each: each[0])
    known = (
        message_of_unit(store, queue, number, unit, report)
        for _, queue, number, unit in reversed(latest)
    )
    # Messages that are not dispatched yet follow all that are.
    pending = (
        message
        for message in messages_of_log(store, report, dispatched)
        if has_queue_unit(message) and topic in (None, message.topic)
    )
    messages = (message for message in chain(known, pending) if message is not None)
    return list(deque(messages, maxlen=count))


def report_damaged_keys(
    store: ReadableStore, topic: str, key: str, report: ReportFault, begin: int, end: int
) -> None:
    """Report damaged messages that the index lists under a key, because no query finds them.

    The index has only a hash of the key, so the message may have another key. Raises OSError.
    """
    for offset in sorted(set(store.index.offsets(topic, key, begin, end))):
        if offset >= store.log.end or store.message(offset) is not None:
            continue
        if offset >= current_log_begin(store):
            what = "no sound message is here, and it may be one with this key"
            report(Fault.at(store.log.segments, offset, what))


def unindexed_messages(store: ReadableStore, key: str) -> Iterator[Stored]:
    """Yield messages with a key from parts of the log that no index file covers. Raises OSError.

    Such messages are not indexed yet, or their index file is missing or unreadable, or the store
    has no index.
    """
    at = store.log.begin
    for file in store.index.files:
        header = file.header
        if header.next_entry > 1:
            yield from _with_key(store, key, at, header.begin_offset)
            at = max(at, header.end_offset)
    yield from _with_key(store, key, at, store.log.end)


def _with_key(store: ReadableStore, key: str, begin: int, end: int) -> Iterator[Stored]:
    if begin >= end:
        return
    for message in messages_of_log(store, lambda fault: None, begin):
        if message.offset >= end:
            return
        if key in message.keys:
            yield message
