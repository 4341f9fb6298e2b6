"""Finding the jobs of a tube from their heads on, while they are being taken out of it.

A peek shows the first job of a state, and nothing shows the second. But ids near the first one's
tend to be of the same tube, so a window of ids from it on is looked at in one pipeline. Whoever
deletes what is found sees the next head, until there is none: nothing is missed, whatever ids are.
"""

from __future__ import annotations

from beanstalkd_py.admin.connection import NOT_FOUND, Connection
from beanstalkd_py.admin.statistics import BURIED, READY, JobStats, job_stats

WINDOW = 256
"""Ids in one look."""


def head(connection: Connection, tube: str, state: str) -> int | None:
    """The id of the first job of a free state, in the server's order."""
    replies = connection.ask([b"use " + tube.encode(), b"peek-" + state.encode()])
    replies[0].expect(b"USING")
    if replies[1] is NOT_FOUND:
        return None
    return int(replies[1].expect(b"FOUND").values[0])


def window(connection: Connection, tube: str, first: int) -> list[JobStats]:
    """The jobs of the tube among the ids from `first` on, by id."""
    found = job_stats(connection, range(first, first + WINDOW))
    return [job for job in found if job is not None and job.tube == tube]


def next_in_order(connection: Connection, tube: str, state: str) -> list[JobStats] | None:
    """Jobs that are next, in their order; None if there is none, perhaps [] if they move.

    Ready ones are of one priority, so no job of a later priority overtakes. The order of buried
    ones is not that of their ids, so it is one at a time.
    """
    first = head(connection, tube, state)
    if first is None:
        return None
    if state == BURIED:
        found = [job for job in job_stats(connection, [first]) if job is not None]
    else:
        found = window(connection, tube, first)
    found = [job for job in found if job.state == state and job.tube == tube]
    if state != READY or not found or found[0].id != first:
        return found if found and found[0].id == first else []
    return [job for job in found if job.pri == found[0].pri]
