"""What a job is asked, and whether it can be asked that. Imports nothing of Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.jobs.durations import microseconds_of
from beanstalkd_py.pipeline.jobs.registry import Job


@dataclass(frozen=True, slots=True)
class Wish:
    """What a job is asked. None is what its function does by itself.

    `begin` and `end` are moments in UTC, `end` not included; of tubes, those that are named.
    """

    mode: str = "PERMISSIVE"
    begin: datetime | None = None
    end: datetime | None = None
    tubes: tuple[str, ...] = ()
    window: str | None = None
    timeouts: int | None = None
    bodies: bool | None = None
    allow_loss: bool | None = None


OPTIONS = ("window", "timeouts", "bodies", "allow_loss")


def check(job: Job, wish: Wish) -> None:
    """Raises PipelineUsageError for what the job cannot be asked."""
    for name in OPTIONS:
        if getattr(wish, name) is not None and name not in job.options:
            raise PipelineUsageError(f"--{name.replace('_', '-')} is not for {job.name}")
    if wish.window is not None:
        microseconds_of("window", wish.window)
    if job.span is None and (wish.begin or wish.end):
        raise PipelineUsageError(
            f"--from and --to are not for {job.name}, which needs everything that is there"
        )
    if wish.tubes and not job.is_by_tube:
        raise PipelineUsageError(f"--tube is not for {job.name}, which is not about tubes")
    if wish.begin and wish.end and wish.begin >= wish.end:
        raise PipelineUsageError("--from is not before --to, so there is nothing between")


def options_of(job: Job, wish: Wish) -> dict[str, Any]:
    """What was wished for of what the job's function takes."""
    given = {name: getattr(wish, name) for name in job.options}
    return {name: value for name, value in given.items() if value is not None}
