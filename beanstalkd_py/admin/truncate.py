"""Delete all jobs of a tube that are not reserved, by the server itself or job by job."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from beanstalkd_py.admin.connection import NOT_FOUND, Connection
from beanstalkd_py.admin.job_scan import first_job, jobs_in_window
from beanstalkd_py.control.client import ControlClient


@dataclass
class TruncateResult:
    """Number of deleted jobs. `complete` is false if the command was stopped before."""

    deleted: int = 0
    complete: bool = False


def truncate_on_server(
    control: ControlClient,
    tube: str,
    states: Sequence[str],
    result: TruncateResult,
    stopped: Callable[[], bool],
) -> None:
    """Let the server delete the jobs; the history then has them as truncated.

    Stops the server's command once `stopped()` is true. Raises ControlError.
    """
    stop_sent = False
    result.complete = True
    for answer in control.answers("truncate", tube=tube, states=list(states)):
        result.deleted = int(answer["deleted"])
        result.complete = not answer.get("stopped", False)
        if stopped() and not stop_sent:
            control.stop()
            stop_sent = True


def truncate(
    connection: Connection,
    tube: str,
    states: Sequence[str],
    result: TruncateResult,
    deferred: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Delete the tube's jobs in these states until there is none, including new ones.

    Each batch is deleted and counted inside `deferred()`. Ends once `stopped()` is true, which is
    called before each batch.
    """
    for state in states:
        while not stopped() and (first := first_job(connection, tube, state)) is not None:
            jobs = jobs_in_window(connection, tube, first)
            commands = [b"delete %d" % job.id for job in jobs if job.state in states]
            with deferred():
                replies = connection.execute_all(commands)
                result.deleted += sum(reply is not NOT_FOUND for reply in replies)
    result.complete = not stopped()
