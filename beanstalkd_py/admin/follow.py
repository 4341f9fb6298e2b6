"""Seeing new jobs come into a tube without taking any.

Ids rise with each put, so new jobs have ids above those that were there. Nobody tells the highest
id: it is reckoned from below, by the server's number of puts, the first jobs of the tube, and the
jobs that are met. A look asks for the ids from there on. What is older than the follower is old.

A job that comes and goes between two looks is not seen; the tube's count of puts tells how many.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from beanstalkd_py.admin.connection import NOT_FOUND, Connection
from beanstalkd_py.admin.job_record import Job
from beanstalkd_py.admin.statistics import FREE_STATES, JobStats, TubeStats, job_stats, parse

AHEAD = 1024
"""Ids looked at beyond those that are expected: puts that were refused have taken some."""
BEHIND = 256
"""Ids looked at once more: an id is given before the body has come."""
FAR_AHEAD = 1 << 20
"""And when the tube has more jobs than were found, after a restart of the server for example."""


@dataclass
class _Look:
    """One look at the server: puts so far, the tube, and the ids of its first jobs."""

    puts: int
    tube: TubeStats
    heads: list[int]


@dataclass
class Follower:
    """Follows one tube, from the moment it is made. `shown` is the number of jobs it has returned.

    Its connection uses the tube, so the tube and its counts stay while it does.
    """

    connection: Connection
    tube: str
    shown: int = 0
    _next_id: int = 0
    _given_up: int = 0
    _seen: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """What is there now is old."""
        self.connection.client.use(self.tube)
        self._began_s = time.monotonic()
        self._last = self._first = self._look()
        self._next_id = max([self._last.puts, *self._last.heads]) + 1
        around = self._alive_from(self._next_id - BEHIND, BEHIND + AHEAD)
        self._seen.update(job.id for job in around)

    @property
    def missed(self) -> int:
        """Jobs that have come up to the last look and had gone before they were seen."""
        return max(0, self._last.tube.total - self._first.tube.total - self.shown)

    def new_jobs(self) -> list[Job]:
        """The jobs that have come since the last time and are still there, by id."""
        before, self._last = self._last, self._look()
        puts = max(0, self._last.puts - before.puts)
        # New ids are above the highest of the last look, which was at most so far below any head.
        start = max([self._next_id, *(head - puts - AHEAD for head in self._last.heads)])
        found = self._new(self._alive_from(start - BEHIND, BEHIND + puts + 2 * AHEAD))
        if self._unseen(found) > self._given_up:
            found = self._new(self._alive_from(start, FAR_AHEAD))
            self._given_up = self._unseen(found)
        self._next_id = max([start + puts, *(job.id + 1 for job in found)])
        self._seen = {job for job in self._seen if job >= self._next_id - BEHIND}
        self._seen.update(job.id for job in found)
        jobs = self._with_bodies(found)
        self.shown += len(jobs)
        return jobs

    def _unseen(self, found: list[JobStats]) -> int:
        """Jobs that are certainly there, came after the first look, and were never found."""
        growth = self._last.tube.alive - self._first.tube.alive
        return max(0, growth - self.shown - len(found))

    def _look(self) -> _Look:
        name = self.tube.encode()
        peeks = [b"peek-" + state.encode() for state in FREE_STATES]
        server, tube, *heads = self.connection.ask([b"stats", b"stats-tube " + name, *peeks])
        puts = int(parse(server.expect(b"OK").body)["total-jobs"])
        ids = [int(head.values[0]) for head in heads if head is not NOT_FOUND]
        return _Look(puts, TubeStats.read(tube), ids)

    def _alive_from(self, start: int, count: int) -> list[JobStats]:
        first = max(1, start)
        found = job_stats(self.connection, range(first, max(first, start + count)))
        return [job for job in found if job is not None]

    def _new(self, alive: list[JobStats]) -> list[JobStats]:
        oldest_s = time.monotonic() - self._began_s + 1
        return [
            job
            for job in alive
            if job.tube == self.tube and job.id not in self._seen and job.age_s <= oldest_s
        ]

    def _with_bodies(self, found: list[JobStats]) -> list[Job]:
        bodies = self.connection.ask([b"peek %d" % job.id for job in found])
        return [
            Job.of(stats, body.body)
            for stats, body in zip(found, bodies, strict=True)
            if body is not NOT_FOUND
        ]
