"""Emptying a tube: deleting whatever is not reserved, by the server itself or job by job."""

from __future__ import annotations

from collections.abc import Sequence

from beanstalkd_py.admin.connection import NOT_FOUND, Connection
from beanstalkd_py.admin.heads import head, window
from beanstalkd_py.control.client import ControlClient


def truncate_at_once(control: ControlClient, tube: str, states: Sequence[str]) -> int:
    """Has the server delete them, which then knows that they were truncated; how many.

    Raises ControlError.
    """
    done = control.ask("truncate", tube=tube, states=list(states))
    return int(done["deleted"])


def truncate(connection: Connection, tube: str, states: Sequence[str]) -> int:
    """Deletes the tube's jobs in these states until there is none; returns how many it was.

    Jobs that are put meanwhile go, too. Reserved ones cannot be deleted by anyone else.
    """
    deleted = 0
    for state in states:
        while (first := head(connection, tube, state)) is not None:
            found = [job.id for job in window(connection, tube, first) if job.state in states]
            replies = connection.ask([b"delete %d" % job for job in found])
            deleted += sum(reply is not NOT_FOUND for reply in replies)
    return deleted
