"""Find the jobs of a tube from the first one of a state on, while a command removes them.

A peek returns the first job of a state; no command returns the second. Ids next to the first one
tend to belong to the same tube, so that one pipeline queries a window of ids. The caller removes
these jobs and repeats this until no first job is left, so that it misses none.
"""

from __future__ import annotations

from beanstalkd_py.admin.connection import NOT_FOUND, Connection
from beanstalkd_py.admin.statistics import BURIED, READY, JobStats, job_stats

WINDOW = 256
"""Ids in one query."""


def first_job(connection: Connection, tube: str, state: str) -> int | None:
    """Return the id of the first job of a free state, in the server's order."""
    used, peeked = connection.execute_all([b"use " + tube.encode(), b"peek-" + state.encode()])
    used.expect(b"USING")
    return None if peeked is NOT_FOUND else int(peeked.expect(b"FOUND").values[0])


def jobs_in_window(connection: Connection, tube: str, first: int) -> list[JobStats]:
    """Return the jobs of the tube in a window of ids from `first` on, by id."""
    window = job_stats(connection, range(first, first + WINDOW))
    return [job for job in window if job is not None and job.tube == tube]


def next_jobs(connection: Connection, tube: str, state: str) -> list[JobStats] | None:
    """Return the next jobs in order; None if there is none, [] if clients are changing them.

    Returns ready jobs of one priority only, so that none overtakes a job of another priority.
    Returns a single buried job, because buried jobs are not ordered by id.
    """
    first = first_job(connection, tube, state)
    if first is None:
        return None
    if state == BURIED:
        window = [job for job in job_stats(connection, [first]) if job is not None]
    else:
        window = jobs_in_window(connection, tube, first)
    jobs = [job for job in window if job.state == state and job.tube == tube]
    if not jobs or jobs[0].id != first:
        return []
    return [job for job in jobs if state != READY or job.pri == jobs[0].pri]
