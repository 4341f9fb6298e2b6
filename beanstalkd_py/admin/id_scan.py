"""Find and read all jobs of a tube without changing any, by querying ids.

The protocol of beanstalkd cannot list jobs. It reports the number of jobs of a tube (stats-tube),
the first ready, delayed and buried job (peek), and the tube of any id (stats-job). The scan
therefore queries ids in pipelines, from the first jobs outwards in both directions, until it has
found as many jobs as the tube has.

Completeness: the scan queries all jobs that it has found a second time, after the tube's job count.
Jobs that still exist also existed at the time of the count. If their number equals the count, the
scan is complete.

Limits: while clients put and delete jobs all the time, the numbers may never match. The scan stops
in a direction after `reach` consecutive ids without a job of any tube, because the protocol does
not report the highest id. The caller must then report that jobs may be missing.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from beanstalkd_py.admin import statistics
from beanstalkd_py.admin.connection import NOT_FOUND, Connection, Reply
from beanstalkd_py.admin.job_record import Job
from beanstalkd_py.admin.job_scan import first_job
from beanstalkd_py.admin.jobs import with_bodies
from beanstalkd_py.admin.statistics import JobStats

FIRST_STEP = 256
MAX_STEP = 8192
"""Ids in one step; each step in a direction has twice as many as the one before."""
DEFAULT_REACH = 1_000_000
HIGHEST_ID = 2**64 - 1
READ_BATCH = 64

Progress = Callable[[int, int, int], None]
"""Receives the numbers of ids queried, jobs found, and jobs of the tube."""


@dataclass
class Scan:
    """Jobs found, by id. `expected` is the tube's last number of jobs, `queried` that of ids."""

    jobs: dict[int, JobStats] = field(default_factory=dict)
    expected: int = 0
    queried: int = 0
    complete: bool = False


@dataclass
class _Gap:
    """Ids from `low` to `high` that were not queried yet."""

    low: int
    high: int


@dataclass
class _Frontier:
    """One end of a gap. `idle` is the number of ids since the last job of any tube."""

    gap: _Gap
    upwards: bool
    idle: int = 0
    step: int = FIRST_STEP

    def take(self) -> Sequence[int]:
        gap, count = self.gap, self.step
        self.step = min(2 * count, MAX_STEP)
        if self.upwards:
            ids = range(gap.low, min(gap.low + count - 1, gap.high) + 1)
            gap.low += len(ids)
        else:
            ids = range(max(gap.high - count + 1, gap.low), gap.high + 1)
            gap.high -= len(ids)
        return ids


def scan(
    connection: Connection, tube: str, reach: int = DEFAULT_REACH, progress: Progress | None = None
) -> Scan:
    """Find the jobs of a tube, reserved ones included.

    Changes no counter of the tube or its jobs, only cmd-peek-*, cmd-stats-job and cmd-stats-tube.
    Finds no job in a tube that has only reserved jobs. Raises RefusedError without such a tube.
    """
    stats = statistics.tube_stats(connection, tube)
    result = Scan(expected=stats.alive)
    states = [state for state in statistics.FREE_STATES if stats.count([state])]
    first = {first_job(connection, tube, state) for state in states}
    frontiers = _frontiers(sorted(job for job in first if job is not None))
    result.complete = not frontiers
    while frontiers and not result.complete:
        frontier = frontiers[0]
        ids = frontier.take()
        hits, alive = _query(connection, tube, ids, result)
        frontier.idle = 0 if alive else frontier.idle + len(ids)
        if not ids or frontier.idle >= reach:
            frontiers.popleft()
        elif not hits:
            # A frontier continues while it finds jobs; otherwise the next one continues.
            frontiers.rotate(-1)
        if len(result.jobs) >= result.expected:
            result.complete = _confirm(connection, tube, result)
        if progress is not None:
            progress(result.queried, len(result.jobs), result.expected)
    return result


def _frontiers(seeds: list[int]) -> deque[_Frontier]:
    """Return two frontiers for each gap between two seeds, and one on each outer side."""
    if not seeds:
        return deque()
    gaps = [_Gap(low, high - 1) for low, high in itertools.pairwise(seeds)]
    inner = [_Frontier(gap, upwards) for gap in gaps for upwards in (True, False)]
    outer = [
        _Frontier(_Gap(seeds[-1], HIGHEST_ID), upwards=True),
        _Frontier(_Gap(1, seeds[0] - 1), upwards=False),
    ]
    return deque([*inner, *outer])


def _query(connection: Connection, tube: str, ids: Sequence[int], result: Scan) -> tuple[int, int]:
    """Return the numbers of jobs of this tube and of any tube among these ids."""
    replies = _query_ids(connection, tube, ids, result)
    result.queried += len(ids)
    alive = [reply for reply in replies if reply is not NOT_FOUND]
    hits = list(_jobs_of_tube(alive, tube))
    result.jobs.update((job.id, job) for job in hits)
    return len(hits), len(alive)


def _confirm(connection: Connection, tube: str, result: Scan) -> bool:
    """Query all jobs again, drop deleted ones, and return whether the scan is complete."""
    replies = _query_ids(connection, tube, result.jobs, result)
    result.jobs = {job.id: job for job in _jobs_of_tube(replies, tube)}
    return len(result.jobs) >= result.expected


def _query_ids(connection: Connection, tube: str, ids: Iterable[int], result: Scan) -> list[Reply]:
    """Return the replies for these ids; count the tube's jobs before them."""
    first, *replies = connection.execute_all(
        [statistics.stats_tube_command(tube), *(b"stats-job %d" % job for job in ids)]
    )
    result.expected = statistics.existing_tube(first, tube).alive
    return replies


def _jobs_of_tube(replies: Iterable[Reply], tube: str) -> Iterable[JobStats]:
    # Searching for this line avoids parsing the statistics of other tubes' jobs.
    lines = (b"\ntube: %b\n" % tube.encode(), b'\ntube: "%b"\n' % tube.encode())
    for reply in replies:
        if any(line in reply.body for line in lines):
            job = JobStats.read(reply)
            # C beanstalkd reports a job whose body is still arriving as invalid; it counts nowhere.
            if job.state in statistics.STATES:
                yield job


def read_jobs(connection: Connection, result: Scan) -> Iterator[Job]:
    """Yield the free jobs of a scan with their bodies, by id, without jobs deleted meanwhile."""
    free = [job for _, job in sorted(result.jobs.items()) if job.state in statistics.FREE_STATES]
    for start in range(0, len(free), READ_BATCH):
        yield from with_bodies(connection, free[start : start + READ_BATCH])
