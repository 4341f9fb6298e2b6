"""A job of the registry on inputs: what it needs is read, and what was wished for is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.binlogs.frame import read_binlog
from beanstalkd_py.pipeline.damage_count import Damage, watched, watched_columns
from beanstalkd_py.pipeline.inputs import Inputs
from beanstalkd_py.pipeline.jobs.job_request import Wish, options_of
from beanstalkd_py.pipeline.jobs.registry import Job, Needs, Span
from beanstalkd_py.pipeline.timelines_of import bodies_of, lives_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_of(
    spark: SparkSession, job: Job, inputs: Inputs, wish: Wish, damage: Damage | None = None
) -> DataFrame:
    """The rows of a job, in no order; `damage` counts what is left out. PipelineUsageError."""
    options = options_of(job, wish)
    if job.needs is Needs.ENTRIES:
        columns = watched_columns(job.columns(), wish.mode)
        entries = read_binlog(spark, _binlogs(job, inputs), columns=columns, mode=wish.mode)
        made: DataFrame = job.load()(watched(entries, damage), **options)
        return made
    lives = _chosen(job, lives_of(spark, inputs, wish.mode, damage), wish)
    if job.span is Span.LIVES:
        return lives
    if job.span is Span.WINDOWS:
        return _windows(job.load()(lives, **options), wish)
    bodies = bodies_of(spark, inputs, wish.mode)
    grouped: DataFrame = job.load()(lives, bodies, **options)
    return grouped


def _binlogs(job: Job, inputs: Inputs) -> Sequence[str]:
    if inputs.stores:
        raise PipelineUsageError(
            f"{job.name} is about binlogs, and {inputs.stores[0]} is a history store"
        )
    return inputs.binlogs


def _chosen(job: Job, lives: DataFrame, wish: Wish) -> DataFrame:
    """Lives of the tubes, and those of the span where that is a matter of lives."""
    if wish.tubes:
        lives = lives.where(f.col("tube").isin(*wish.tubes))
    if job.span is Span.LIVES:
        if wish.begin is not None:
            lives = lives.where(f.col("end_at").isNull() | (f.col("end_at") >= f.lit(wish.begin)))
        if wish.end is not None:
            lives = lives.where(f.col("put_at") < f.lit(wish.end))
    if job.span is Span.LAST_EVENTS:
        if wish.begin is not None:
            lives = lives.where(f.col("last_at") >= f.lit(wish.begin))
        if wish.end is not None:
            lives = lives.where(f.col("last_at") < f.lit(wish.end))
    return lives


def _windows(rows: DataFrame, wish: Wish) -> DataFrame:
    """Of all windows, because depth is of everything before."""
    if wish.begin is not None:
        rows = rows.where(f.col("window_end") > f.lit(wish.begin))
    if wish.end is not None:
        rows = rows.where(f.col("window_start") < f.lit(wish.end))
    return rows
