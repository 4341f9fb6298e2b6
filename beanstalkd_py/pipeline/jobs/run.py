"""Runs a registered job on inputs and selects the requested rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.damage_count import DamageCount, read_counted
from beanstalkd_py.pipeline.frames import read_binlog
from beanstalkd_py.pipeline.inputs import Inputs
from beanstalkd_py.pipeline.jobs.job_request import JobRequest, options_of
from beanstalkd_py.pipeline.jobs.registry import Job, Needs, Span
from beanstalkd_py.pipeline.timelines_of import bodies_of, timelines_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
        made: DataFrame = job.load()(entries, **options)
        return made
    timelines = _chosen(job, timelines_of(spark, inputs, request.mode, damage), request)
    if job.span is Span.JOBS:
        return timelines
    if job.span is Span.WINDOWS:
        return _windows(job.load()(timelines, **options), request)
    bodies = bodies_of(spark, inputs, request.mode)
    grouped: DataFrame = job.load()(timelines, bodies, **options)
    return grouped


def _binlogs(job: Job, inputs: Inputs) -> Sequence[str]:
    if inputs.stores:
        raise PipelineUsageError(
            f"job {job.name} reads binlogs, and {inputs.stores[0]} is a history store"
        )
    return inputs.binlogs


def _chosen(job: Job, timelines: DataFrame, request: JobRequest) -> DataFrame:
    """Select timelines by tube, and by time unless the job selects windows."""
    if request.tubes:
        timelines = timelines.where(f.col("tube").isin(*request.tubes))
    if job.span is Span.JOBS:
        if request.begin is not None:
            timelines = timelines.where(
                f.col("end_at").isNull() | (f.col("end_at") >= f.lit(request.begin))
            )
        if request.end is not None:
            timelines = timelines.where(f.col("put_at") < f.lit(request.end))
    if job.span is Span.LAST_EVENTS:
        if request.begin is not None:
            timelines = timelines.where(f.col("last_at") >= f.lit(request.begin))
        if request.end is not None:
            timelines = timelines.where(f.col("last_at") < f.lit(request.end))
    return timelines


def _windows(rows: DataFrame, request: JobRequest) -> DataFrame:
    """Select windows of the result, because depth depends on all earlier jobs."""
    if request.begin is not None:
        rows = rows.where(f.col("window_end") > f.lit(request.begin))
    if request.end is not None:
        rows = rows.where(f.col("window_start") < f.lit(request.end))
    return rows
