"""Runs a registered job on inputs and selects the requested rows."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.damage_count import DamageCount, read_counted
from beanstalkd_py.pipeline.frames import read_binlog
from beanstalkd_py.pipeline.inputs import Inputs
from beanstalkd_py.pipeline.jobs.durations import since_1970
from beanstalkd_py.pipeline.jobs.job_request import JobRequest, options_of
from beanstalkd_py.pipeline.jobs.registry import Job, Needs, Span
from beanstalkd_py.pipeline.timelines_of import bodies_of, timelines_of

CONDITIONS = {
    Span.JOBS: ("end_at is null or end_at >= {}", "put_at < {}"),
    Span.WINDOWS: ("window_end > {}", "window_start < {}"),
    Span.LAST_EVENTS: ("last_at >= {}", "last_at < {}"),
}
"""SQL conditions for the begin and the end of a request."""


def frame_of(
    spark: SparkSession,
    job: Job,
    inputs: Inputs,
    request: JobRequest,
    damage: DamageCount | None = None,
) -> DataFrame:
    """Return the unsorted rows of a job; `damage` counts faults. Raises PipelineUsageError."""
    options = options_of(job, request)
    if job.needs is Needs.ENTRIES:
        paths, mode = _binlogs(job, inputs), request.mode
        entries = read_counted(read_binlog, spark, paths, job.columns(), mode, damage)
        rows: DataFrame = job.load()(entries, **options)
        return rows
    timelines = timelines_of(spark, inputs, request.mode, damage)
    if request.tubes:
        timelines = timelines.where(f.col("tube").isin(*request.tubes))
    if job.span is Span.JOBS:
        return _in_time(timelines, job.span, request)
    if job.span is Span.WINDOWS:
        # Filters the rows and not the timelines, because depth depends on all earlier jobs.
        return _in_time(job.load()(timelines, **options), job.span, request)
    bodies = bodies_of(spark, inputs, request.mode)
    groups: DataFrame = job.load()(
        _in_time(timelines, Span.LAST_EVENTS, request), bodies, **options
    )
    return groups


def _binlogs(job: Job, inputs: Inputs) -> Sequence[str]:
    if inputs.stores:
        raise PipelineUsageError(
            f"job {job.name} reads binlogs, and {inputs.stores[0]} is a history store"
        )
    return inputs.binlogs


def _in_time(rows: DataFrame, span: Span, request: JobRequest) -> DataFrame:
    for name, condition in zip(("begin", "end"), CONDITIONS[span], strict=True):
        time = since_1970(name, getattr(request, name))
        if time is not None:
            rows = rows.where(condition.format(f"timestamp_micros({time})"))
    return rows
