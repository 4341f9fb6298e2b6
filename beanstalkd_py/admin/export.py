"""Reading all jobs of a tube without consuming any."""

from __future__ import annotations

from collections.abc import Iterator

from beanstalkd_py.admin.connection import NOT_FOUND, Connection
from beanstalkd_py.admin.id_scan import Scan
from beanstalkd_py.admin.job_record import Job
from beanstalkd_py.admin.statistics import FREE_STATES

AT_ONCE = 64


def jobs_of(connection: Connection, found: Scan) -> Iterator[Job]:
    """The free jobs of a scan with their bodies, by id; those that have gone are left out."""
    free = [job for _, job in sorted(found.jobs.items()) if job.state in FREE_STATES]
    for start in range(0, len(free), AT_ONCE):
        batch = free[start : start + AT_ONCE]
        bodies = connection.ask([b"peek %d" % job.id for job in batch])
        for stats, body in zip(batch, bodies, strict=True):
            if body is not NOT_FOUND:
                yield Job.of(stats, body.body)
