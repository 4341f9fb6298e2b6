"""Deletes the jobs of a tube in small steps, until the deletion is on disk."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import gevent

from beanstalkd_py import errors
from beanstalkd_py.core.step_results import StepOutcome, TruncateStep
from beanstalkd_py.plural import counted

STEP_JOBS = 1000
"""Jobs per step: less than a millisecond of a worker."""
WAIT_S = 0.002
PROGRESS_JOBS = 10_000
"""Jobs per progress report. The client can stop the command only at a report."""

Step = Callable[[bytes, Sequence[str], int, int], TruncateStep]
"""Core.truncate on the worker that owns the tube. Raises ControlError."""


def truncate(
    tube: bytes, states: Sequence[str], step: Step
) -> Generator[dict[str, int], None, dict[str, int]]:
    """Yield {"deleted": jobs} as progress and return the last. Also deletes jobs put meanwhile.

    Raises ControlError if the worker ends, or the disk has no space for the deletion's entries.
    """
    deleted = generation = reported = 0
    most = STEP_JOBS
    while True:
        done = step(tube, states, most, generation)
        deleted, generation = deleted + done.removed, done.generation
        if done.full:
            raise errors.ControlError(
                f"deleted {counted(deleted)}, then the binlog was full; free disk space and retry"
            )
        if done.outcome == StepOutcome.DONE:
            return {"deleted": deleted}
        if done.outcome == StepOutcome.WAIT:
            most = 0  # delete no newer jobs: under load that would never end
        if deleted >= reported + PROGRESS_JOBS:
            reported = deleted
            yield {"deleted": deleted}
        gevent.sleep(WAIT_S if done.outcome == StepOutcome.WAIT else 0)
