"""Watch new jobs arrive in a tube without reserving any.

Ids rise with each put, so that new jobs have higher ids than existing ones. The protocol does not
report the highest id. The follower estimates a lower bound from the server's number of puts, the
first jobs of the tube, and the jobs that it has found. It then queries the ids from this bound on.

The follower cannot find a job that is put and deleted between two polls. It computes the number of
these jobs from the tube's count of puts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from beanstalkd_py.admin import statistics
from beanstalkd_py.admin.connection import NOT_FOUND, Connection
from beanstalkd_py.admin.job_record import Job
from beanstalkd_py.admin.jobs import with_bodies
from beanstalkd_py.admin.statistics import JobStats, TubeStats

AHEAD = 1024
"""Ids queried beyond the expected ones, because refused puts consume ids."""
BEHIND = 256
"""Ids queried a second time, because the server assigns an id before the body has arrived."""
FAR_AHEAD = 1 << 20
"""Ids queried if the tube has more jobs than the follower found, for example after a restart."""


@dataclass
class _Poll:
    """Number of puts so far, the tube's statistics, and the ids of its first jobs."""

    puts: int
    tube: TubeStats
    first_jobs: list[int]


@dataclass
class Follower:
    """Follows one tube from its creation on. `returned` is the number of jobs returned so far.

    The connection uses the tube, which keeps the tube and its counters in existence.
    """

    connection: Connection
    tube: str
    returned: int = 0
    _next_id: int = 0
    _unreachable: int = 0  # jobs that a query of FAR_AHEAD ids has not found
    _seen: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.connection.client.use(self.tube)
        self._began_s = time.monotonic()
        self._last = self._first = self._poll()
        self._next_id = max([self._last.puts, *self._last.first_jobs]) + 1
        existing = self._jobs_from(self._next_id - BEHIND, BEHIND + AHEAD)
        self._seen.update(job.id for job in existing)

    @property
    def missed(self) -> int:
        """Jobs that were put and deleted before a poll found them."""
        return max(0, self._last.tube.total - self._first.tube.total - self.returned)

    def new_jobs(self) -> list[Job]:
        """Return the jobs that arrived since the last call and still exist, by id."""
        before, self._last = self._last, self._poll()
        puts = max(0, self._last.puts - before.puts)
        # New ids exceed the highest id of the last poll. Each first job is at most `puts + AHEAD`
        # above that id.
        start = max([self._next_id, *(job - puts - AHEAD for job in self._last.first_jobs)])
        new = self._unseen(self._jobs_from(start - BEHIND, BEHIND + puts + 2 * AHEAD))
        if self._not_found(new) > self._unreachable:
            new = self._unseen(self._jobs_from(start, FAR_AHEAD))
            self._unreachable = self._not_found(new)
        self._next_id = max([start + puts, *(job.id + 1 for job in new)])
        self._seen = {job for job in self._seen if job >= self._next_id - BEHIND}
        self._seen.update(job.id for job in new)
        jobs = with_bodies(self.connection, new)
        self.returned += len(jobs)
        return jobs

    def _not_found(self, new: list[JobStats]) -> int:
        """Return a lower bound of the new jobs that exist and that no poll has found."""
        growth = self._last.tube.alive - self._first.tube.alive
        return max(0, growth - self.returned - len(new))

    def _poll(self) -> _Poll:
        peeks = [b"peek-" + state.encode() for state in statistics.FREE_STATES]
        server, tube, *peeked = self.connection.execute_all(
            [b"stats", statistics.stats_tube_command(self.tube), *peeks]
        )
        puts = int(statistics.parse(server.expect(b"OK").body)["total-jobs"])
        ids = [int(reply.values[0]) for reply in peeked if reply is not NOT_FOUND]
        return _Poll(puts, TubeStats.read(tube), ids)

    def _jobs_from(self, start: int, count: int) -> list[JobStats]:
        first = max(1, start)
        jobs = statistics.job_stats(self.connection, range(first, max(first, start + count)))
        return [job for job in jobs if job is not None]

    def _unseen(self, jobs: list[JobStats]) -> list[JobStats]:
        max_age_s = time.monotonic() - self._began_s + 1
        return [
            job
            for job in jobs
            if job.tube == self.tube and job.id not in self._seen and job.age_s <= max_age_s
        ]
