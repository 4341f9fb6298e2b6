"""The options of one run of a job, and their check. Imports nothing of Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.jobs.durations import microseconds_of
from beanstalkd_py.pipeline.jobs.registry import Job


@dataclass(frozen=True, slots=True)
class JobRequest:
    """The options of a run; None means the default of the job's function.

    `begin` and `end` are times in UTC, `end` excluded. Empty `tubes` means all.
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


def check(job: Job, request: JobRequest) -> None:
    """Raise PipelineUsageError for options that the job does not support."""
    for name in OPTIONS:
        if getattr(request, name) is not None and name not in job.options:
            raise PipelineUsageError(f"job {job.name} has no option --{name.replace('_', '-')}")
    if request.window is not None:
        microseconds_of("window", request.window)
    if job.span is None and (request.begin or request.end):
        raise PipelineUsageError(
            f"job {job.name} has no options --from and --to, because it needs the whole input"
        )
    if request.tubes and not job.is_by_tube:
        raise PipelineUsageError(
            f"job {job.name} has no option --tube, because its rows are not about tubes"
        )
    if request.begin and request.end and request.begin >= request.end:
        raise PipelineUsageError("--from is not before --to; give an earlier one")


def options_of(job: Job, request: JobRequest) -> dict[str, Any]:
    options = {name: getattr(request, name) for name in job.options}
    return {name: value for name, value in options.items() if value is not None}
