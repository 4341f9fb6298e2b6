"""Jobs reserved by this process, held until they are deleted or released.

A thread touches the jobs before their TTR runs out. The end of the process or of its connection
releases them. Imports nothing of Spark.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from beanstalkd_py import errors
from beanstalkd_py.admin.connection import (
    MAX_PIPELINED,
    NOT_FOUND,
    Connection,
    Reply,
    translate_errors,
)
from beanstalkd_py.admin.statistics import Statistics, parse
from beanstalkd_py.pipeline.sink.server import TubeServer
from beanstalkd_py.plural import counted

TOUCHES_PER_TTR = 3
KEEPALIVE_S = 5.0
"""The server may close a connection that is idle for longer."""
_NO_MORE = (b"TIMED_OUT", b"DEADLINE_SOON")


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A job with its body and its `stats-job` after the reserve."""

    id: int
    body: bytes
    stats: Statistics


@dataclass(frozen=True, slots=True)
class Committed:
    """Numbers of jobs that were deleted, and that were gone because others had got them."""

    deleted: int
    gone: int


@dataclass(slots=True)
class _TouchGroup:
    """Jobs of one TTR and the time of their next touch."""

    ttr_s: int
    due_mono: float
    ids: list[int]


class HeldJobs:
    """Reserves and holds jobs. Methods raise NoConnectionError and RefusedError."""

    def __init__(self, server: TubeServer) -> None:
        self.jobs: dict[int, HeldJob] = {}
        self.size = 0
        self.lost: set[int] = set()
        self._server = server
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._deleted: set[int] = set()
        self._groups: dict[int, _TouchGroup] = {}
        self._sent_mono = time.monotonic()
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None
        self._opened = contextlib.ExitStack()
        self._connection: Connection = self._opened.enter_context(server.connect())

    @property
    def is_closed(self) -> bool:
        return self._ended.is_set()

    def close(self) -> None:
        """Close the connection, so that the server releases the jobs that are not deleted."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._opened.close()

    def take(self, tubes: Sequence[str], limit: int, limit_bytes: int, wait_s: int) -> None:
        """Reserve ready jobs until there are `limit` jobs or bodies of `limit_bytes`.

        The last job may exceed the bytes. Waits `wait_s` for the first job.
        """
        with self._exchange():
            self._watch(tubes)
            stats = parse(self._connection.execute(b"stats").expect(b"OK").body)
            most_bytes = max(int(stats["max-job-size"]), 1)
            is_more = self._reserve([b"reserve-with-timeout %d" % wait_s], wait_s)
            while is_more and len(self.jobs) < limit and self.size < limit_bytes:
                count = min(MAX_PIPELINED, limit - len(self.jobs))
                # This many bodies stay below the limit even if each has the maximum size.
                count = max(min(count, (limit_bytes - self.size) // most_bytes), 1)
                is_more = self._reserve([b"reserve-with-timeout 0"] * count)
                self._touch_due()
        self._thread = threading.Thread(target=self._hold, name="held-jobs", daemon=True)
        self._thread.start()

    def delete(self) -> Committed:
        """Delete all jobs.

        Raises IncompleteError if the connection is lost; the server releases the other jobs then.
        """
        ids = list(self.jobs)
        deleted = done = 0
        try:
            for start in range(0, len(ids), MAX_PIPELINED):
                part = ids[start : start + MAX_PIPELINED]
                with self._lock, self._exchange():
                    self._touch_due()
                    replies = self._ask([b"delete %d" % job for job in part])
                    self._deleted.update(part)
                done += len(part)
                deleted += sum(reply.word == b"DELETED" for reply in replies)
        except errors.NoConnectionError as error:
            raise errors.IncompleteError(
                f"{error}; {deleted} of {counted(len(ids))} were deleted; the server releases the"
                " others"
            ) from error
        return Committed(deleted, done - deleted)

    @contextlib.contextmanager
    def _exchange(self) -> Iterator[None]:
        if self._failure is not None:
            raise self._failure
        try:
            with translate_errors(self._server.address, self._server.timeout_s):
                yield
        except errors.NoConnectionError as error:
            # Replies no longer match commands.
            self._failure = error
            raise

    def _ask(self, commands: list[bytes]) -> list[Reply]:
        replies = self._connection.execute_all(commands)
        self._sent_mono = time.monotonic()
        return replies

    def _watch(self, tubes: Sequence[str]) -> None:
        commands = [b"watch " + tube.encode() for tube in tubes]
        if "default" not in tubes:
            commands.append(b"ignore default")
        for reply in self._connection.execute_all(commands):
            reply.expect(b"WATCHING")

    def _reserve(self, commands: list[bytes], wait_s: int = 0) -> bool:
        self._connection.extend_timeout(wait_s)
        replies = self._ask(commands)
        self._connection.extend_timeout(0)
        self._add([reply for reply in replies if reply.word not in _NO_MORE])
        return not any(reply.word in _NO_MORE for reply in replies)

    def _add(self, replies: Sequence[Reply]) -> None:
        reserved = [(int(reply.expect(b"RESERVED").values[0]), reply.body) for reply in replies]
        stats = self._ask([b"stats-job %d" % job for job, _ in reserved])
        now_mono = time.monotonic()
        for (job, body), reply in zip(reserved, stats, strict=True):
            # A job whose TTR ran out before its first touch may have been reserved twice.
            if reply is NOT_FOUND or job in self.jobs:
                continue
            held = HeldJob(job, body, parse(reply.expect(b"OK").body))
            self.jobs[job] = held
            self.size += len(body)
            ttr_s = max(int(held.stats["ttr"]), 1)
            due_mono = now_mono + ttr_s / TOUCHES_PER_TTR
            self._groups.setdefault(ttr_s, _TouchGroup(ttr_s, due_mono, [])).ids.append(job)

    def _touch_due(self) -> None:
        for group in self._groups.values():
            now_mono = time.monotonic()
            if now_mono < group.due_mono:
                continue
            group.ids = [job for job in group.ids if job not in self._deleted]
            group.due_mono = now_mono + group.ttr_s / TOUCHES_PER_TTR
            replies = self._ask([b"touch %d" % job for job in group.ids])
            gone = {
                job for job, reply in zip(group.ids, replies, strict=True) if reply is NOT_FOUND
            }
            if gone:
                self.lost |= gone
                group.ids = [job for job in group.ids if job not in gone]

    def _hold(self) -> None:
        while not self._ended.wait(self._pause_s()):
            try:
                with self._lock, self._exchange():
                    self._touch_due()
                    if time.monotonic() - self._sent_mono > KEEPALIVE_S:
                        self._ask([b"list-tube-used"])
            except errors.BeanstalkdError as error:
                self._failure = error
                return

    def _pause_s(self) -> float:
        due = [group.due_mono for group in self._groups.values() if group.ids]
        due_mono = min([*due, self._sent_mono + KEEPALIVE_S])
        return max(due_mono - time.monotonic(), 0.01)
