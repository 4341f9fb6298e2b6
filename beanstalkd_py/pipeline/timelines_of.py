"""Timelines and bodies of all jobs in binlogs and history stores.

A finished job may be both in a store and in a binlog. It counts once, with the complete timeline of
the store.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from beanstalkd_py.pipeline.damage_count import DamageCount, read_counted
from beanstalkd_py.pipeline.frames import read_binlog, read_store
from beanstalkd_py.pipeline.inputs import Inputs, sort_inputs
from beanstalkd_py.pipeline.jobs.dead_letters import BODY_COLUMNS
from beanstalkd_py.pipeline.jobs.dead_letters import bodies_of as bodies_of_entries
from beanstalkd_py.pipeline.jobs.timelines import (
    COLUMNS,
    ENDS_COLUMNS,
    MESSAGE_COLUMNS,
    ends_of,
    timelines,
    timelines_of_messages,
)

_JOB = ("host", "id", "put_at")
_BODY = ("host", "properties", "body")


def timelines_of(
    spark: SparkSession,
    inputs: str | Sequence[str] | Inputs,
    mode: str = "PERMISSIVE",
    damage: DamageCount | None = None,
) -> DataFrame:
    """Return a row for each job, with the columns of `timelines`.

    `inputs` are folders of binlogs and history stores, globs, or a list of these; `damage` counts
    the faults. A job in a binlog and one in a store are the same if host, id and time of the put
    are equal. Raises PipelineUsageError.
    """
    paths = inputs if isinstance(inputs, Inputs) else sort_inputs(spark, inputs)
    frames = []
    if paths.stores:
        messages = read_counted(read_store, spark, paths.stores, MESSAGE_COLUMNS, mode, damage)
        frames.append(timelines_of_messages(messages))
    if paths.binlogs:
        entries = read_counted(read_binlog, spark, paths.binlogs, COLUMNS, mode, damage)
        # Only the first read counts damage.
        again = read_binlog(spark, paths.binlogs, columns=ENDS_COLUMNS, mode=mode)
        frames.append(timelines(entries, ends_of(again)))
    if len(frames) == 1:
        return frames[0]
    ended, of_entries = frames
    return ended.unionByName(of_entries.join(ended.select(*_JOB), [*_JOB], "left_anti"))


def bodies_of(
    spark: SparkSession, inputs: str | Sequence[str] | Inputs, mode: str = "PERMISSIVE"
) -> DataFrame:
    """Return the columns host, id, created_at_ns and body of jobs, perhaps several times each.

    Raises PipelineUsageError.
    """
    paths = inputs if isinstance(inputs, Inputs) else sort_inputs(spark, inputs)
    frames = []
    if paths.binlogs:
        entries = read_binlog(spark, paths.binlogs, columns=BODY_COLUMNS, mode=mode)
        frames.append(bodies_of_entries(entries))
    if paths.stores:
        frames.append(_of_messages(read_store(spark, paths.stores, columns=_BODY, mode=mode)))
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


def _of_messages(messages: DataFrame) -> DataFrame:
    properties = f.col("properties")
    put = f.regexp_extract(properties["timeline"], r"^put@(\d+)", 1)
    return messages.where(put != "").select(
        "host",
        f.expr("try_cast(properties['KEYS'] as bigint)").alias("id"),
        put.cast("long").alias("created_at_ns"),
        "body",
    )
