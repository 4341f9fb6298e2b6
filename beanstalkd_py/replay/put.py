"""Putting the messages of a part of a topic, and noting how far that came.

Jobs go in batches. What a batch did is noted before the next one goes, so a kill leaves at most the
jobs of one batch that are there and not noted; they are put again, and none is left out.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from beanstalkd_py import errors
from beanstalkd_py.admin.connection import Connection
from beanstalkd_py.admin.import_jobs import AT_ONCE, AT_ONCE_BYTES
from beanstalkd_py.admin.job_record import Job
from beanstalkd_py.admin.jobs import inserted_copies
from beanstalkd_py.admin.statistics import parse
from beanstalkd_py.history.message import Stored
from beanstalkd_py.history.queries.conditions import MessageFilter
from beanstalkd_py.history.queries.ranges import MessageState, RangeItem
from beanstalkd_py.plural import counted
from beanstalkd_py.replay.jobs import Terms, bytes_left_out, job_of
from beanstalkd_py.replay.pace import Pace
from beanstalkd_py.replay.state import Reached

LOOKED_AT_ONCE = 1024
"""Messages after which it is noted how far it came, though few of them were put."""
NAP_S = 0.1
"""It looks so often whether it is to stop while it waits."""
SIGN_OF_LIFE_S = 5.0
"""A connection that is silent for longer may be closed as idle."""

_TOO_BIG = "JOB_TOO_BIG"


@dataclass(frozen=True, slots=True)
class Order:
    """What to do with messages. `rate` is jobs per second, None for as fast as it goes."""

    tube: str
    wanted: MessageFilter
    terms: Terms
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Listener:
    """Who is told. `note` may raise, which ends it before another job is put.

    `left_out` gets a message that is wanted and cannot be put, and why.
    """

    note: Callable[[Reached], None]
    left_out: Callable[[Stored, str], None] = lambda _message, _why: None
    advance: Callable[[Reached], None] = lambda _reached: None
    stopped: Callable[[], bool] = lambda: False


class _Kind(enum.Enum):
    """What a place of the part is."""

    PASSED = enum.auto()
    JOB = enum.auto()
    LEFT_OUT = enum.auto()
    TOO_BIG = enum.auto()
    DAMAGED = enum.auto()
    EXPIRED = enum.auto()


_GONE = {MessageState.DAMAGED: _Kind.DAMAGED, MessageState.EXPIRED: _Kind.EXPIRED}


@dataclass(frozen=True, slots=True)
class _Entry:
    offset: int
    kind: _Kind
    message: Stored | None = None


class Replaying:
    """One run. `reached` has what is acknowledged."""

    def __init__(
        self, connection: Connection, order: Order, reached: Reached, listener: Listener
    ) -> None:
        self.reached = reached
        self._connection = connection
        self._order = order
        self._listener = listener
        self._pace = Pace(order.rate, AT_ONCE)
        stats = parse(connection.ask_one(b"stats").expect(b"OK").body)
        self._most_bytes = int(stats["max-job-size"])
        self._entries: list[_Entry] = []
        self._jobs: list[Job] = []
        self._size = 0

    def run(self, part: Iterable[RangeItem]) -> bool:
        """Puts what is wanted of it. False: it was stopped.

        RefusedError: the server takes no more. NoConnectionError: it is lost.
        """
        for found in part:
            if self._listener.stopped():
                return False
            self._add(found)
            if self._is_full() and not self._flush():
                return False
        return self._flush()

    def _is_full(self) -> bool:
        # Behind a job that was refused lie some that were not. One at a time, they get no more.
        at_once = 1 if self.reached.done_beyond else self._pace.at_once
        return (
            len(self._jobs) >= at_once
            or self._size > AT_ONCE_BYTES
            or len(self._entries) >= LOOKED_AT_ONCE
        )

    def _add(self, found: RangeItem) -> None:
        message = found.message
        kind = self._kind_of(found)
        is_told = kind in (_Kind.LEFT_OUT, _Kind.TOO_BIG)
        self._entries.append(_Entry(found.offset, kind, message if is_told else None))
        if kind is _Kind.JOB and message is not None:
            self._jobs.append(job_of(message, self._order.tube, self._order.terms))
            self._size += len(message.body)

    def _kind_of(self, found: RangeItem) -> _Kind:
        if found.offset in self.reached.done_beyond:
            return _Kind.PASSED
        if found.message is None:
            return _GONE[found.state]
        if not self._order.wanted(found.message):
            return _Kind.PASSED
        if bytes_left_out(found.message) is not None:
            return _Kind.LEFT_OUT
        return _Kind.TOO_BIG if len(found.message.body) > self._most_bytes else _Kind.JOB

    def _flush(self) -> bool:
        """Puts what has come together and notes it. False: it was stopped before."""
        if self._jobs and not self._wait():
            return False
        outcomes: list[int | errors.RefusedError] = []
        if self._jobs:
            self._pace.took(len(self._jobs), time.monotonic())
            delays_s = [job.delay_s for job in self._jobs]
            outcomes = inserted_copies(self._connection, self._order.tube, self._jobs, delays_s)
        refusal = self._settle(outcomes)
        self._entries, self._jobs, self._size = [], [], 0
        self._listener.note(self.reached)
        self._listener.advance(self.reached)
        if refusal is not None:
            raise refusal
        return True

    def _wait(self) -> bool:
        """Until the next jobs may go. False: stopped."""
        spoken_mono = time.monotonic()
        while (left_s := self._pace.wait_s(now_mono := time.monotonic())) > 0:
            if self._listener.stopped():
                return False
            if now_mono - spoken_mono > SIGN_OF_LIFE_S:
                self._connection.ask_one(b"list-tube-used")
                spoken_mono = now_mono
            time.sleep(min(left_s, NAP_S))
        return True

    def _settle(self, outcomes: list[int | errors.RefusedError]) -> errors.RefusedError | None:
        """Counts what became of the entries; the refusal that ends it, if there is one."""
        refusal: errors.RefusedError | None = None
        replies = iter(zip(self._jobs, outcomes, strict=True))
        for entry in self._entries:
            kind = entry.kind
            job, outcome = next(replies) if kind is _Kind.JOB else (None, None)
            if refusal is not None:
                if job is not None and isinstance(outcome, int):
                    self._count_put(job)
                    self.reached.done_beyond.append(entry.offset)
                continue
            if isinstance(outcome, errors.RefusedError):
                if outcome.word != _TOO_BIG:
                    refusal = outcome
                    continue
                kind = _Kind.TOO_BIG
            elif job is not None:
                self._count_put(job)
            self._count(entry, kind)
            self.reached.looked_at += 1
            self.reached.offset = entry.offset + 1
        beyond = self.reached.done_beyond
        beyond[:] = [offset for offset in beyond if offset >= self.reached.offset]
        return refusal

    def _count_put(self, job: Job) -> None:
        self.reached.put += 1
        self.reached.put_bytes += len(job.body)

    def _count(self, entry: _Entry, kind: _Kind) -> None:
        reached, message = self.reached, entry.message
        match kind:
            case _Kind.DAMAGED:
                reached.damaged += 1
            case _Kind.EXPIRED:
                reached.expired += 1
            case _Kind.TOO_BIG:
                reached.too_big += 1
            case _Kind.LEFT_OUT:
                reached.left_out += 1
        if message is not None:
            self._listener.left_out(message, self._why(message))

    def _why(self, message: Stored) -> str:
        size = bytes_left_out(message)
        if size is not None:
            return f"its body of {counted(size, 'byte')} is not in the store"
        length = counted(len(message.body), "byte")
        return f"its body has {length}, and the server takes {self._most_bytes}"
