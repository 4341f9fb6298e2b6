"""Put the messages of a time range of a topic, and record the progress.

The replay records its progress after each batch of jobs. After a kill it puts at most one batch
again, and omits no job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from beanstalkd_py import errors
from beanstalkd_py.admin.connection import Connection
from beanstalkd_py.admin.import_jobs import BATCH_BYTES, BATCH_JOBS
from beanstalkd_py.admin.job_record import Job
from beanstalkd_py.admin.jobs import put_copies
from beanstalkd_py.admin.rate_limiter import RateLimiter
from beanstalkd_py.admin.statistics import max_job_size
from beanstalkd_py.history.message import Stored
from beanstalkd_py.history.queries.conditions import MessageFilter
from beanstalkd_py.history.queries.ranges import MessageState, RangeItem
from beanstalkd_py.plural import counted
from beanstalkd_py.replay.jobs import JobOverrides, job_of, missing_body_size
from beanstalkd_py.replay.state import ReplayState

BATCH_MESSAGES = 1024
"""Messages after which the progress is recorded even if few of them were put."""

_TOO_BIG = "JOB_TOO_BIG"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A message of the batch.

    It has a job to put, or the field of ReplayState that counts it; neither if the message does not
    match, or was put before.
    """

    offset: int
    job: Job | None = None
    counter: str = ""
    skipped: Stored | None = None


@dataclass
class Replayer:
    """One run, with the target, selection and rate (jobs per second, None is unlimited).

    `state` counts only acknowledged jobs. `save` may raise, which ends the replay before another
    job is put. `skipped` receives a message that cannot be put, and the reason.
    """

    connection: Connection
    tube: str
    matches: MessageFilter
    overrides: JobOverrides
    rate: float | None
    state: ReplayState
    save: Callable[[ReplayState], None]
    skipped: Callable[[Stored, str], None]
    advance: Callable[[ReplayState], None]
    stopped: Callable[[], bool]

    def __post_init__(self) -> None:
        self._limiter = RateLimiter(self.rate, BATCH_JOBS)
        self._max_bytes = max_job_size(self.connection)
        self._entries: list[_Entry] = []
        self._jobs: list[Job] = []
        self._size = 0

    def run(self, items: Iterable[RangeItem]) -> bool:
        """Put the matching messages; return False if stopped.

        Raises RefusedError if the server refuses a job, and NoConnectionError.
        """
        for item in items:
            if self.stopped():
                return False
            self._add(item)
            if self._is_full() and not self._flush():
                return False
        return self._flush()

    def _is_full(self) -> bool:
        # Jobs after a refused one may have been put; batches of one job keep `done_beyond` short.
        batch_jobs = 1 if self.state.done_beyond else self._limiter.batch_jobs
        return (
            len(self._jobs) >= batch_jobs
            or self._size > BATCH_BYTES
            or len(self._entries) >= BATCH_MESSAGES
        )

    def _add(self, item: RangeItem) -> None:
        entry = self._entry_of(item)
        self._entries.append(entry)
        if entry.job is not None:
            self._jobs.append(entry.job)
            self._size += len(entry.job.body)

    def _entry_of(self, item: RangeItem) -> _Entry:
        offset, message = item.offset, item.message
        if offset in self.state.done_beyond:
            return _Entry(offset)
        if message is None:
            is_damaged = item.state is MessageState.DAMAGED
            return _Entry(offset, counter="damaged" if is_damaged else "expired")
        if not self.matches(message):
            return _Entry(offset)
        if missing_body_size(message) is not None:
            return _Entry(offset, counter="left_out", skipped=message)
        if len(message.body) > self._max_bytes:
            return _Entry(offset, counter="too_big", skipped=message)
        return _Entry(offset, job_of(message, self.tube, self.overrides))

    def _flush(self) -> bool:
        """Put the batch and record it; return False if stopped before."""
        if self._jobs and not self._limiter.wait(self.connection, self.stopped):
            return False
        outcomes: list[int | errors.RefusedError] = []
        if self._jobs:
            self._limiter.record(len(self._jobs), time.monotonic())
            delays_s = [job.delay_s for job in self._jobs]
            outcomes = put_copies(self.connection, self.tube, self._jobs, delays_s)
        refusal = self._count_batch(outcomes)
        self._entries, self._jobs, self._size = [], [], 0
        self.save(self.state)
        self.advance(self.state)
        if refusal is not None:
            raise refusal
        return True

    def _count_batch(self, outcomes: list[int | errors.RefusedError]) -> errors.RefusedError | None:
        """Count the entries of the batch; return the refusal that ends the replay, if any."""
        refusal: errors.RefusedError | None = None
        state, replies = self.state, iter(outcomes)
        for entry in self._entries:
            job, counter = entry.job, entry.counter
            outcome = None if job is None else next(replies)
            if refusal is not None:
                if job is not None and isinstance(outcome, int):
                    self._count_put(job)
                    state.done_beyond.append(entry.offset)
                continue
            if isinstance(outcome, errors.RefusedError):
                if outcome.word != _TOO_BIG:
                    refusal = outcome
                    continue
                counter = "too_big"
            elif job is not None:
                self._count_put(job)
            if counter:
                setattr(state, counter, getattr(state, counter) + 1)
            if entry.skipped is not None:
                self.skipped(entry.skipped, self._reason(entry.skipped))
            state.looked_at += 1
            state.offset = entry.offset + 1
        state.done_beyond = [offset for offset in state.done_beyond if offset >= state.offset]
        return refusal

    def _count_put(self, job: Job) -> None:
        self.state.put += 1
        self.state.put_bytes += len(job.body)

    def _reason(self, message: Stored) -> str:
        size = missing_body_size(message)
        if size is not None:
            return f"the store does not have its body of {counted(size, 'byte')}"
        length = counted(len(message.body), "byte")
        return f"body of {length} exceeds the server's max-job-size of {self._max_bytes}"
