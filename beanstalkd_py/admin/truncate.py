"""Emptying a tube: deleting whatever is not reserved, by the server itself or job by job."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from beanstalkd_py.admin.connection import NOT_FOUND, Connection
from beanstalkd_py.admin.job_scan import head, window
from beanstalkd_py.control.client import ControlClient


@dataclass
class Truncated:
    """How far it came. `complete`: none was left."""

    deleted: int = 0
    complete: bool = False


def truncate_at_once(
    control: ControlClient,
    tube: str,
    states: Sequence[str],
    truncated: Truncated,
    stopped: Callable[[], bool],
) -> None:
    """Has the server delete them, which then knows that they were truncated.

    Once `stopped` is true the server is asked to stop, and says how many it has deleted. Raises
    ControlError.
    """
    asked = False
    truncated.complete = True
    for done in control.answers("truncate", tube=tube, states=list(states)):
        truncated.deleted = int(done["deleted"])
        truncated.complete = not done.get("stopped", False)
        if stopped() and not asked:
            control.stop()
            asked = True


def truncate(
    connection: Connection,
    tube: str,
    states: Sequence[str],
    truncated: Truncated,
    held: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
) -> None:
    """Deletes the tube's jobs in these states until there is none.

    Jobs that are put meanwhile go, too. Reserved ones cannot be deleted by anyone else. Each batch
    is deleted and counted inside `held()`.
    """
    for state in states:
        while (first := head(connection, tube, state)) is not None:
            found = [job.id for job in window(connection, tube, first) if job.state in states]
            with held():
                replies = connection.ask([b"delete %d" % job for job in found])
                truncated.deleted += sum(reply is not NOT_FOUND for reply in replies)
    truncated.complete = True
