"""`lives_of`: timelines of all jobs of binlogs and history stores, whichever tell of them.

A job that has ended may be in a store already and in a binlog still. It counts once, as the store
has it: a store tells a life from its beginning to its end.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from beanstalkd_py.pipeline.binlogs.frame import read_binlog
from beanstalkd_py.pipeline.damage_count import Damage, watched, watched_columns
from beanstalkd_py.pipeline.inputs import Inputs, sort_inputs
from beanstalkd_py.pipeline.jobs.dead_letters import BODY_COLUMNS
from beanstalkd_py.pipeline.jobs.dead_letters import bodies_of as bodies_of_entries
from beanstalkd_py.pipeline.jobs.timelines import (
    COLUMNS,
    MESSAGE_COLUMNS,
    timelines,
    timelines_of_messages,
)
from beanstalkd_py.pipeline.stores.frame import read_store

LIFE = ("host", "id", "put_at")
_BODY = ("host", "properties", "body")


def lives_of(
    spark: SparkSession,
    inputs: str | Sequence[str] | Inputs,
    mode: str = "PERMISSIVE",
    damage: Damage | None = None,
) -> DataFrame:
    """A row for each job, with the columns of `timelines`.

    `inputs` are folders of binlogs and history stores, globs, or several of these; `mode` is what
    is done about damaged places, and `damage` counts those that are left out. A job in a binlog and
    in a store is one if the host, the id and the time of the put are the same. Raises
    PipelineUsageError.
    """
    given = inputs if isinstance(inputs, Inputs) else sort_inputs(spark, inputs)
    found = []
    if given.stores:
        columns = watched_columns(MESSAGE_COLUMNS, mode)
        messages = read_store(spark, given.stores, columns=columns, mode=mode)
        found.append(timelines_of_messages(watched(messages, damage)))
    if given.binlogs:
        columns = watched_columns(COLUMNS, mode)
        entries = read_binlog(spark, given.binlogs, columns=columns, mode=mode)
        found.append(timelines(watched(entries, damage)))
    if len(found) == 1:
        return found[0]
    ended, told = found
    return ended.unionByName(told.join(ended.select(*LIFE), [*LIFE], "left_anti"))


def bodies_of(
    spark: SparkSession, inputs: str | Sequence[str] | Inputs, mode: str = "PERMISSIVE"
) -> DataFrame:
    """The bodies of jobs: host, id, created_at_ns and body. Copies may have them again.

    Raises PipelineUsageError.
    """
    given = inputs if isinstance(inputs, Inputs) else sort_inputs(spark, inputs)
    found = []
    if given.binlogs:
        entries = read_binlog(spark, given.binlogs, columns=BODY_COLUMNS, mode=mode)
        found.append(bodies_of_entries(entries))
    if given.stores:
        found.append(_of_messages(read_store(spark, given.stores, columns=_BODY, mode=mode)))
    return found[0] if len(found) == 1 else found[0].unionByName(found[1])


def _of_messages(messages: DataFrame) -> DataFrame:
    """Those of other messages than finished jobs, which have no timeline, are left out."""
    properties = f.col("properties")
    put = f.regexp_extract(properties["timeline"], r"^put@(\d+)", 1)
    return messages.where(put != "").select(
        "host",
        f.expr("try_cast(properties['KEYS'] as bigint)").alias("id"),
        put.cast("long").alias("created_at_ns"),
        "body",
    )
