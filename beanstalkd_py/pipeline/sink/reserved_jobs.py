"""Jobs that this process has reserved, and holds until it is known what becomes of them.

They are held by a connection and touched before their TTR runs out, by a thread. Whatever ends the
process or the connection gives them back. Must not know Spark, nor what is done with the jobs.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from beanstalkd_py import errors
from beanstalkd_py.admin.connection import MOST_AHEAD, NOT_FOUND, Connection, Reply, in_our_words
from beanstalkd_py.admin.statistics import Statistics, parse
from beanstalkd_py.pipeline.sink.server import TubesServer
from beanstalkd_py.plural import counted

TOUCHES_PER_TTR = 3
SIGN_OF_LIFE_S = 5.0
"""A connection that is silent for longer may be closed as idle."""
_NO_MORE = (b"TIMED_OUT", b"DEADLINE_SOON")


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A job with its body, and what `stats-job` said of it when it was reserved."""

    id: int
    body: bytes
    stats: Statistics


@dataclass(frozen=True, slots=True)
class Settled:
    """How many jobs were deleted, and how many were gone: they are, or were, given to others."""

    deleted: int
    gone: int


@dataclass(slots=True)
class _Turn:
    """Jobs of one TTR, and when they are to be touched next."""

    ttr_s: int
    due_mono: float
    ids: list[int]


class Held:
    """Reserves jobs and holds them. Raises NoConnectionError and RefusedError where it asks."""

    def __init__(self, server: TubesServer) -> None:
        self.jobs: dict[int, HeldJob] = {}
        self.size = 0
        self.lost: set[int] = set()
        self._server = server
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._over: set[int] = set()
        self._turns: dict[int, _Turn] = {}
        self._spoken_mono = time.monotonic()
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None
        self._opened = contextlib.ExitStack()
        self._connection: Connection = self._opened.enter_context(server.connect())

    @property
    def is_closed(self) -> bool:
        """Whether they are given back."""
        return self._ended.is_set()

    def close(self) -> None:
        """Gives back what was not deleted: the server does so when a connection closes."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._opened.close()

    def take(self, tubes: Sequence[str], limit: int, limit_bytes: int, wait_s: int) -> None:
        """Reserves what is ready, until there are `limit` jobs, or bodies of `limit_bytes`.

        The last job may go beyond the bytes. For the first one it waits `wait_s`.
        """
        with self._speaking():
            self._watch(tubes)
            stats = parse(self._connection.ask_one(b"stats").expect(b"OK").body)
            most_bytes = max(int(stats["max-job-size"]), 1)
            is_more = self._reserve([b"reserve-with-timeout %d" % wait_s], wait_s)
            while is_more and len(self.jobs) < limit and self.size < limit_bytes:
                count = min(MOST_AHEAD, limit - len(self.jobs))
                # So many stay below the bytes, whatever their sizes are.
                count = max(min(count, (limit_bytes - self.size) // most_bytes), 1)
                is_more = self._reserve([b"reserve-with-timeout 0"] * count)
                self._touch_due()
        self._thread = threading.Thread(target=self._hold, name="holds jobs", daemon=True)
        self._thread.start()

    def delete(self) -> Settled:
        """Deletes all jobs. Raises IncompleteError if the connection is lost meanwhile or before.

        It is the end of this: what was not deleted then is given back.
        """
        ids = list(self.jobs)
        deleted = done = 0
        try:
            for start in range(0, len(ids), MOST_AHEAD):
                part = ids[start : start + MOST_AHEAD]
                with self._lock, self._speaking():
                    self._touch_due()
                    replies = self._ask([b"delete %d" % job for job in part])
                    self._over.update(part)
                done += len(part)
                deleted += sum(reply.word == b"DELETED" for reply in replies)
        except errors.NoConnectionError as error:
            raise errors.IncompleteError(
                f"{error}; {deleted} of {counted(len(ids))} deleted, the others are given again"
            ) from error
        return Settled(deleted, done - deleted)

    @contextlib.contextmanager
    def _speaking(self) -> Iterator[None]:
        if self._failure is not None:
            raise self._failure
        try:
            with in_our_words(self._server.address, self._server.timeout_s):
                yield
        except errors.NoConnectionError as error:
            # Replies are out of step with commands now.
            self._failure = error
            raise

    def _ask(self, commands: list[bytes]) -> list[Reply]:
        replies = self._connection.ask(commands)
        self._spoken_mono = time.monotonic()
        return replies

    def _watch(self, tubes: Sequence[str]) -> None:
        commands = [b"watch " + tube.encode() for tube in tubes]
        if "default" not in tubes:
            commands.append(b"ignore default")
        for reply in self._connection.ask(commands):
            reply.expect(b"WATCHING")

    def _reserve(self, commands: list[bytes], wait_s: int = 0) -> bool:
        """Whether more may be ready."""
        self._connection.be_patient(wait_s)
        replies = self._ask(commands)
        self._connection.be_patient(0)
        self._add([reply for reply in replies if reply.word not in _NO_MORE])
        return not any(reply.word in _NO_MORE for reply in replies)

    def _add(self, replies: Sequence[Reply]) -> None:
        found = [(int(reply.expect(b"RESERVED").values[0]), reply.body) for reply in replies]
        stats = self._ask([b"stats-job %d" % job for job, _ in found])
        now_mono = time.monotonic()
        for (job, body), reply in zip(found, stats, strict=True):
            # One whose TTR ran out before it could be touched may have come a second time.
            if reply is NOT_FOUND or job in self.jobs:
                continue
            held = HeldJob(job, body, parse(reply.expect(b"OK").body))
            self.jobs[job] = held
            self.size += len(body)
            ttr_s = max(int(held.stats["ttr"]), 1)
            due_mono = now_mono + ttr_s / TOUCHES_PER_TTR
            self._turns.setdefault(ttr_s, _Turn(ttr_s, due_mono, [])).ids.append(job)

    def _touch_due(self) -> None:
        for turn in self._turns.values():
            now_mono = time.monotonic()
            if now_mono < turn.due_mono:
                continue
            turn.ids = [job for job in turn.ids if job not in self._over]
            turn.due_mono = now_mono + turn.ttr_s / TOUCHES_PER_TTR
            replies = self._ask([b"touch %d" % job for job in turn.ids])
            gone = {job for job, reply in zip(turn.ids, replies, strict=True) if reply is NOT_FOUND}
            if gone:
                self.lost |= gone
                turn.ids = [job for job in turn.ids if job not in gone]

    def _hold(self) -> None:
        while not self._ended.wait(self._pause_s()):
            try:
                with self._lock, self._speaking():
                    self._touch_due()
                    if time.monotonic() - self._spoken_mono > SIGN_OF_LIFE_S:
                        self._ask([b"list-tube-used"])
            except errors.BeanstalkdError as error:
                # Whoever wants the jobs next is told.
                self._failure = error
                return

    def _pause_s(self) -> float:
        turns = [turn.due_mono for turn in self._turns.values() if turn.ids]
        due_mono = min([*turns, self._spoken_mono + SIGN_OF_LIFE_S])
        return max(due_mono - time.monotonic(), 0.01)


def held(server: TubesServer, fill: Callable[[Held], None]) -> Held:
    """One that is filled, or closed again if that fails."""
    holder = Held(server)
    try:
        fill(holder)
    except BaseException:
        holder.close()
        raise
    return holder
