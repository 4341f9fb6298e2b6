"""Put the messages of a time range of a topic, and record the progress.

Jobs are put in batches. The progress is recorded after each batch, so that a kill leaves at most
one batch of jobs that were put and not recorded. These are put again; no job is omitted.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from beanstalkd_py import errors
from beanstalkd_py.admin.connection import Connection
from beanstalkd_py.admin.import_jobs import BATCH_BYTES, BATCH_JOBS
from beanstalkd_py.admin.job_record import Job
from beanstalkd_py.admin.jobs import put_copies
from beanstalkd_py.admin.statistics import max_job_size
from beanstalkd_py.history.message import Stored
from beanstalkd_py.history.queries.conditions import MessageFilter
from beanstalkd_py.history.queries.ranges import MessageState, RangeItem
from beanstalkd_py.plural import counted
from beanstalkd_py.replay.jobs import JobOverrides, job_of, missing_body_size
from beanstalkd_py.replay.state import ReplayState

BATCH_MESSAGES = 1024
"""Messages after which the progress is recorded even if few of them were put."""
SLEEP_S = 0.1
"""Interval between checks for a stop."""
KEEPALIVE_S = 5.0
"""Interval between commands while waiting, because the server may close idle connections."""
TICK_S = 0.01
"""At high rates, jobs of this period are put together."""
SLACK_S = 0.1
"""A longer delay is not caught up."""

_TOO_BIG = "JOB_TOO_BIG"


class RateLimiter:
    """Spreads jobs evenly at `rate` per second; None is unlimited. `now` is monotonic seconds."""

    def __init__(self, rate: float | None, max_batch: int) -> None:
        self._rate = rate
        self._due: float | None = None
        self.batch_jobs = max_batch if rate is None else max(1, min(max_batch, int(rate * TICK_S)))

    def wait_s(self, now: float) -> float:
        """Return the time until the next batch is due."""
        return 0.0 if self._rate is None or self._due is None else max(0.0, self._due - now)

    def record(self, count: int, now: float) -> None:
        """Record that `count` jobs are put now."""
        if self._rate is not None:
            due = now if self._due is None else max(self._due, now - SLACK_S)
            self._due = due + count / self._rate


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """Target, selection and rate (jobs per second, None is unlimited) of a replay."""

    tube: str
    matches: MessageFilter
    overrides: JobOverrides
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class ReplayCallbacks:
    """`save` may raise, which ends the replay before another job is put.

    `skipped` receives a message that cannot be put, and the reason.
    """

    save: Callable[[ReplayState], None]
    skipped: Callable[[Stored, str], None] = lambda _message, _reason: None
    advance: Callable[[ReplayState], None] = lambda _state: None
    stopped: Callable[[], bool] = lambda: False


class _Kind(enum.Enum):
    IGNORED = enum.auto()
    JOB = enum.auto()
    NO_BODY = enum.auto()
    TOO_BIG = enum.auto()
    DAMAGED = enum.auto()
    EXPIRED = enum.auto()


_GONE = {MessageState.DAMAGED: _Kind.DAMAGED, MessageState.EXPIRED: _Kind.EXPIRED}


@dataclass(frozen=True, slots=True)
class _Entry:
    offset: int
    kind: _Kind
    message: Stored | None = None


class Replayer:
    """One run. `state` counts only acknowledged jobs."""

    def __init__(
        self,
        connection: Connection,
        settings: ReplaySettings,
        state: ReplayState,
        callbacks: ReplayCallbacks,
    ) -> None:
        self.state = state
        self._connection = connection
        self._settings = settings
        self._callbacks = callbacks
        self._limiter = RateLimiter(settings.rate, BATCH_JOBS)
        self._max_bytes = max_job_size(connection)
        self._entries: list[_Entry] = []
        self._jobs: list[Job] = []
        self._size = 0

    def run(self, items: Iterable[RangeItem]) -> bool:
        """Put the matching messages; return False if stopped.

        Raises RefusedError if the server refuses a job, and NoConnectionError.
        """
        for item in items:
            if self._callbacks.stopped():
                return False
            self._add(item)
            if self._is_full() and not self._flush():
                return False
        return self._flush()

    def _is_full(self) -> bool:
        # Jobs after a refused one may have been put. Batches of one job keep that list short.
        batch_jobs = 1 if self.state.done_beyond else self._limiter.batch_jobs
        return (
            len(self._jobs) >= batch_jobs
            or self._size > BATCH_BYTES
            or len(self._entries) >= BATCH_MESSAGES
        )

    def _add(self, item: RangeItem) -> None:
        message = item.message
        kind = self._kind_of(item)
        is_skipped = kind in (_Kind.NO_BODY, _Kind.TOO_BIG)
        self._entries.append(_Entry(item.offset, kind, message if is_skipped else None))
        if kind is _Kind.JOB and message is not None:
            self._jobs.append(job_of(message, self._settings.tube, self._settings.overrides))
            self._size += len(message.body)

    def _kind_of(self, item: RangeItem) -> _Kind:
        if item.offset in self.state.done_beyond:
            return _Kind.IGNORED
        if item.message is None:
            return _GONE[item.state]
        if not self._settings.matches(item.message):
            return _Kind.IGNORED
        if missing_body_size(item.message) is not None:
            return _Kind.NO_BODY
        return _Kind.TOO_BIG if len(item.message.body) > self._max_bytes else _Kind.JOB

    def _flush(self) -> bool:
        """Put the batch and record it; return False if stopped before."""
        if self._jobs and not self._wait():
            return False
        outcomes: list[int | errors.RefusedError] = []
        if self._jobs:
            self._limiter.record(len(self._jobs), time.monotonic())
            delays_s = [job.delay_s for job in self._jobs]
            outcomes = put_copies(self._connection, self._settings.tube, self._jobs, delays_s)
        refusal = self._count_batch(outcomes)
        self._entries, self._jobs, self._size = [], [], 0
        self._callbacks.save(self.state)
        self._callbacks.advance(self.state)
        if refusal is not None:
            raise refusal
        return True

    def _wait(self) -> bool:
        """Wait until the batch is due; return False if stopped."""
        sent_mono = time.monotonic()
        while (left_s := self._limiter.wait_s(now_mono := time.monotonic())) > 0:
            if self._callbacks.stopped():
                return False
            if now_mono - sent_mono > KEEPALIVE_S:
                self._connection.execute(b"list-tube-used")
                sent_mono = now_mono
            time.sleep(min(left_s, SLEEP_S))
        return True

    def _count_batch(self, outcomes: list[int | errors.RefusedError]) -> errors.RefusedError | None:
        """Count the entries of the batch; return the refusal that ends the replay, if any."""
        refusal: errors.RefusedError | None = None
        replies = iter(zip(self._jobs, outcomes, strict=True))
        for entry in self._entries:
            kind = entry.kind
            job, outcome = next(replies) if kind is _Kind.JOB else (None, None)
            if refusal is not None:
                if job is not None and isinstance(outcome, int):
                    self._count_put(job)
                    self.state.done_beyond.append(entry.offset)
                continue
            if isinstance(outcome, errors.RefusedError):
                if outcome.word != _TOO_BIG:
                    refusal = outcome
                    continue
                kind = _Kind.TOO_BIG
            elif job is not None:
                self._count_put(job)
            self._count(entry, kind)
            self.state.looked_at += 1
            self.state.offset = entry.offset + 1
        beyond = self.state.done_beyond
        beyond[:] = [offset for offset in beyond if offset >= self.state.offset]
        return refusal

    def _count_put(self, job: Job) -> None:
        self.state.put += 1
        self.state.put_bytes += len(job.body)

    def _count(self, entry: _Entry, kind: _Kind) -> None:
        state, message = self.state, entry.message
        match kind:
            case _Kind.DAMAGED:
                state.damaged += 1
            case _Kind.EXPIRED:
                state.expired += 1
            case _Kind.TOO_BIG:
                state.too_big += 1
            case _Kind.NO_BODY:
                state.left_out += 1
        if message is not None:
            self._callbacks.skipped(message, self._reason(message))

    def _reason(self, message: Stored) -> str:
        size = missing_body_size(message)
        if size is not None:
            return f"the store does not have its body of {counted(size, 'byte')}"
        length = counted(len(message.body), "byte")
        return f"body of {length} exceeds the server's max-job-size of {self._max_bytes}"
