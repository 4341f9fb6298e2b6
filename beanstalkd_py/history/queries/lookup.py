"""Find and read messages by offset, key and time, in a store open for writing or reading."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from beanstalkd_py.history.files.checkpoint import Dispatched
from beanstalkd_py.history.files.commit_log import CommitLog, LogWalk
from beanstalkd_py.history.files.consume_queue import ConsumeQueues, Unit
from beanstalkd_py.history.files.index import Index
from beanstalkd_py.history.message import Stored
from beanstalkd_py.history.options import Sizes

ALWAYS = 2**63 - 1
QUERY_LIMIT = 64


class ReadableStore:
    """The read interface of Store and StoreReader. Methods raise OSError and StoreDamagedError."""

    recorded: Dispatched | None = None
    """Contents of the file `dispatched` before any other file was opened."""
    was_open: bool = True
    """Whether at that time a writer had the store open, or had ended without closing it."""

    def __init__(
        self, folder: Path, sizes: Sizes, log: CommitLog, queues: ConsumeQueues, index: Index
    ) -> None:
        self.folder = folder
        self.sizes = sizes
        self.log = log
        self.queues = queues
        self.index = index

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def message(self, offset: int) -> Stored | None:
        """Return the message that begins at a log offset; None if there is none."""
        return self.log.message(offset) if offset < self.log.end else None

    def last(self) -> Stored | None:
        """Return the last message of the log; None if the log is empty."""
        return None if self.log.last_offset is None else self.log.message(self.log.last_offset)

    def scan(self, begin: int | None = None, end: int | None = None) -> Iterator[Stored]:
        """Yield messages in log order, from the start of a message on.

        It ends at the log's end at the time of the call, at `end`, or before a damaged message.
        """
        begin = self.log.begin if begin is None else begin
        end = self.log.end if end is None else min(end, self.log.end)
        return LogWalk(self.log, begin, self.log.checks).messages(end)

    def refresh(self) -> None:
        """Look for changes by another process; a store open for writing has none."""

    def refresh_log(self) -> None:
        """Look for messages that another process has added."""

    def follow(
        self,
        begin: int | None = None,
        poll_seconds: float = 0.1,
        should_stop: Callable[[], bool] = lambda: False,
        wait: Callable[[float], object] = time.sleep,
    ) -> Iterator[Stored]:
        """Yield messages from an offset on (None: the log's end), and wait for further ones."""
        at = self.log.end if begin is None else begin
        while not should_stop():
            before = at
            for message in self.scan(at):
                at = message.offset + message.size
                yield message
            if at == before:
                wait(poll_seconds)
                self.refresh_log()

    def topics(self) -> dict[str, list[int]]:
        topics: dict[str, list[int]] = {}
        for queue in sorted(self.queues, key=lambda each: (each.topic, each.queue_id)):
            topics.setdefault(queue.topic, []).append(queue.queue_id)
        return topics

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the queue offsets of the oldest and of the next message; (0, 0) if no queue."""
        queue = self.queues.get(topic, queue_id)
        return (0, 0) if queue is None else (queue.find_from(self.log.begin), queue.end)

    def find_time(self, topic: str, queue_id: int, timestamp: int, last: bool = False) -> int:
        """Return the queue offset of the first message stored at a time or later.

        With `last`, return that of the last message stored at the time or earlier; one less than
        the first if there is none.
        """
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return -1 if last else 0

        def is_before(unit: Unit) -> bool:
            stored = self.log.store_timestamp(unit.offset)
            return stored is None or stored < timestamp or (last and stored == timestamp)

        begin, end = self.bounds(topic, queue_id)
        return queue.bisect(begin, end, is_before) - (1 if last else 0)

    def query(
        self, topic: str, key: str, begin: int = 0, end: int = ALWAYS, limit: int = QUERY_LIMIT
    ) -> list[Stored]:
        """Return messages of a topic with a key, newest first, stored at begin..end (milliseconds).

        The key is a word of KEYS, or UNIQ_KEY.
        """
        found: list[Stored] = []
        seen: set[int] = set()
        for offset in self.index.offsets(topic, key, begin, end):
            if len(found) >= limit:
                break
            message = None if offset in seen else self.message(offset)
            seen.add(offset)
            if message is None or message.topic != topic or key not in message.keys:
                continue
            if begin <= message.store_timestamp <= end:
                found.append(message)
        return found
