"""Finding all jobs of a tube without touching any: by asking for ids.

The protocol lists no jobs. It tells how many a tube has (stats-tube), shows the first ready,
delayed and buried one (peek), and says of any id whether there is a job and of which tube
(stats-job). So ids are asked for in pipelines, from the three first jobs outwards, both ways, until
as many have been found as there are.

When it is complete: let L be the number of jobs at a moment, and let then all that were found be
asked for once more. Those still there were there at that moment, too; if they are L, they are all.

Where it is not: if jobs come and go all the time, the numbers may never meet. A direction is given
up after `reach` ids in a row without a job of any tube, for nobody tells the highest id. Who calls
must say that something may be missing.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from beanstalkd_py.admin.connection import NOT_FOUND, Connection, Reply
from beanstalkd_py.admin.job_scan import head
from beanstalkd_py.admin.statistics import FREE_STATES, STATES, JobStats, TubeStats, no_tube

FIRST_STEP = 256
LONGEST_STEP = 8192
"""Ids in one step; each step of a direction is twice as long as the one before."""
DEFAULT_REACH = 1_000_000
HIGHEST_ID = 2**64 - 1

Progress = Callable[[int, int, int], None]
"""Told the ids looked at, the jobs found, the jobs that there are."""


@dataclass
class Scan:
    """What was found, by id. `expected` is the number of jobs that the tube had at the end."""

    jobs: dict[int, JobStats] = field(default_factory=dict)
    expected: int = 0
    looked_at: int = 0
    complete: bool = False


@dataclass
class _Gap:
    """Ids that nobody has looked at yet, from `low` to `high`."""

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
        self.step = min(2 * count, LONGEST_STEP)
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
    """Finds the jobs of a tube, reserved ones included.

    No counter of the tube or its jobs moves; cmd-peek-*, cmd-stats-job and cmd-stats-tube do. If
    only reserved jobs are there, none is found. Raises RefusedError if there is no such tube.
    """
    found = Scan()
    stats = _tube(connection.ask_one(b"stats-tube " + tube.encode()), tube)
    found.expected = stats.alive
    heads = [head(connection, tube, state) for state in FREE_STATES if stats.count([state])]
    frontiers = _frontiers(sorted({first for first in heads if first is not None}))
    found.complete = not frontiers
    while frontiers and not found.complete:
        frontier = frontiers[0]
        ids = frontier.take()
        hits, alive = _look(connection, tube, ids, found)
        frontier.idle = 0 if alive else frontier.idle + len(ids)
        if not ids or frontier.idle >= reach:
            frontiers.popleft()
        elif not hits:
            # One that finds something goes on; else it is the next one's turn.
            frontiers.rotate(-1)
        if len(found.jobs) >= found.expected:
            found.complete = _confirm(connection, tube, found)
        if progress is not None:
            progress(found.looked_at, len(found.jobs), found.expected)
    return found


def _frontiers(seeds: list[int]) -> deque[_Frontier]:
    """Two for each gap between two seeds, and one to each side of all."""
    if not seeds:
        return deque()
    gaps = [_Gap(low, high - 1) for low, high in itertools.pairwise(seeds)]
    inner = [_Frontier(gap, upwards) for gap in gaps for upwards in (True, False)]
    outer = [
        _Frontier(_Gap(seeds[-1], HIGHEST_ID), upwards=True),
        _Frontier(_Gap(1, seeds[0] - 1), upwards=False),
    ]
    return deque([*inner, *outer])


def _look(connection: Connection, tube: str, ids: Sequence[int], found: Scan) -> tuple[int, int]:
    """Jobs of this tube and jobs of any tube among these ids."""
    first, *replies = connection.ask(
        [b"stats-tube " + tube.encode(), *(b"stats-job %d" % job for job in ids)]
    )
    found.expected = _tube(first, tube).alive
    found.looked_at += len(ids)
    alive = [reply for reply in replies if reply is not NOT_FOUND]
    hits = list(_of_tube(alive, tube))
    found.jobs.update((job.id, job) for job in hits)
    return len(hits), len(alive)


def _confirm(connection: Connection, tube: str, found: Scan) -> bool:
    """Whether these are all. Jobs that have gone are dropped, states are brought up to date."""
    first, *replies = connection.ask(
        [b"stats-tube " + tube.encode(), *(b"stats-job %d" % job for job in found.jobs)]
    )
    found.expected = _tube(first, tube).alive
    found.jobs = {job.id: job for job in _of_tube(replies, tube)}
    return len(found.jobs) >= found.expected


def _of_tube(replies: Iterable[Reply], tube: str) -> Iterable[JobStats]:
    # Looking for the line spares reading all of the others' statistics.
    lines = (b"\ntube: %b\n" % tube.encode(), b'\ntube: "%b"\n' % tube.encode())
    for reply in replies:
        if any(line in reply.body for line in lines):
            job = JobStats.read(reply)
            # C beanstalkd knows a job as invalid while its body is arriving; it counts it nowhere.
            if job.state in STATES:
                yield job


def _tube(reply: Reply, tube: str) -> TubeStats:
    if reply is NOT_FOUND:
        raise no_tube(tube)
    return TubeStats.read(reply)
