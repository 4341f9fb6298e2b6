"""The `timelines` job: a row for each job with its events.

The key of a job is (host, id, created_at_ns), because ids are reused in a folder that was emptied.
Its entries may be in any files; a shuffle groups them without their bodies, then timeline_rows.py
decodes them.

docs/spark/jobs.md describes the columns, the kinds of times and the end of the data. At most 1000
inferred events of one kind are added between two entries; the counters have their number. Copies by
compaction are not events.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from beanstalkd_py.pipeline._columns import lib
from beanstalkd_py.pipeline.jobs import timeline_rows
from beanstalkd_py.pipeline.jobs.timeline_rows import CERTAINTIES, COUNTERS, ENDS, SIZE_AT, STATES

SCHEMA = from_arrow_schema(timeline_rows.SCHEMA)
COLUMNS = (
    *("host", "shard", "file_number", "offset", "kind", "id", "tube", "priority", "delay", "ttr"),
    *("body_size", "state", "ended", "checksum"),
    *("reserves", "timeouts", "releases", "buries", "kicks"),
    *("created_at_ns", "event_time_ns", "event_time_kind", "event_time_until"),
    *("deadline_at_ns", "old_deadline_at_ns", "reserved_at_ns"),
)
"""Columns needed of entries."""
ENDS_COLUMNS = (
    *("host", "id", "kind", "state", "checksum"),
    *("created_at_ns", "event_time_ns", "reserved_at_ns"),
)
"""Columns needed of entries for `ends_of`."""

MESSAGE_COLUMNS = ("host", "tube", "bodySize", "properties")
"""Columns needed of messages."""

_JOB = ("id", "host", "created_at")
"""The key of a job, the most selective column first."""


def timelines(entries: DataFrame, ends: DataFrame | None = None) -> DataFrame:
    """Return a row for each job; `ends` is `ends_of` the same entries, read again by default."""
    ends = ends_of(entries) if ends is None else ends
    known = entries.where(f.col("id").isNotNull()).join(f.broadcast(ends), "host")
    packed = known.select(*_packed())
    ordered = packed.repartition(*_JOB).sortWithinPartitions(*_JOB, "file_number", "offset")
    return ordered.mapInArrow(timeline_rows.timelines_of_entries, SCHEMA)


def ends_of(entries: DataFrame) -> DataFrame:
    """Return host, data_end (nanoseconds) and has_reserves: whether entries record reserves.

    The time of a copied event may be in the future after a restart, so copies do not count.
    """
    is_full = f.col("kind") == "full"
    time = f.when(is_full, f.col("created_at_ns")).otherwise(f.col("event_time_ns"))
    is_reserve = (f.col("state") == "reserved") | f.col("reserved_at_ns").isNotNull()
    return (
        entries.where(f.col("id").isNotNull())
        .groupBy("host")
        .agg(
            f.max(time).alias("data_end"),
            f.max(~is_full & (f.col("checksum") == "right") & is_reserve).alias("has_reserves"),
        )
    )


def _packed() -> list[Column]:
    """Pack entries into few columns of fixed width, which makes the shuffle smaller."""
    bounded = f.col("event_time_kind") == "bounded"
    until_ns = f.unix_micros("event_time_until") * 1000
    more = f.when(bounded, until_ns).otherwise(f.col("reserved_at_ns"))
    unknown = f.lit(-1).cast("long")
    return [
        *map(f.col, ("host", "shard", "id", "file_number", "offset", "tube", "delay", "ttr")),
        f.col("created_at_ns").alias("created_at"),
        f.col("event_time_ns").alias("at"),
        f.coalesce(more, unknown).alias("more"),
        f.coalesce("deadline_at_ns", "old_deadline_at_ns", unknown).alias("deadline"),
        _pair("reserves", "timeouts"),
        _pair("releases", "buries"),
        _pair("kicks", "priority"),
        _flags().alias("flags"),
        f.col("data_end"),
    ]


def _pair(upper: str, lower: str) -> Column:
    return f.shiftleft(f.col(upper), 32).bitwiseOR(f.col(lower)).alias(f"{upper}_{lower}")


def _flags() -> Column:
    """Pack words and the size of the body into one number (csrc/columns/columns.h)."""
    conditions = (
        (f.col("checksum") == "right", lib.BC_FLAGS_SOUND),
        (f.col("kind") == "full", lib.BC_FLAGS_FULL),
        (f.col("has_reserves"), lib.BC_FLAGS_RESERVES),
    )
    flags = f.shiftleft(f.col("body_size").cast("long"), SIZE_AT)
    flags = flags + _number(f.col("state"), STATES)
    flags = flags + _number(f.col("event_time_kind"), CERTAINTIES) * lib.BC_FLAGS_CERTAINTY
    flags = flags + _end_number(f.col("ended")) * lib.BC_FLAGS_ENDED
    for condition, flag in conditions:
        flags = flags + f.when(condition, flag).otherwise(0)
    return flags


def _number(word: Column, words: tuple[str, ...]) -> Column:
    """Return the index of a word, null for another one."""
    number = f.when(word == words[0], 0)
    for index, each in enumerate(words[1:], 1):
        number = number.when(word == each, index)
    return number


def _end_number(word: Column) -> Column:
    """Return the index of how a job ended; null and an unknown word count as a delete."""
    return f.coalesce(_number(word, ENDS), f.lit(0))


def timelines_of_messages(messages: DataFrame) -> DataFrame:
    """Return the timelines of messages with at least MESSAGE_COLUMNS.

    Messages without a timeline are not about jobs and are left out. `shard` is null for a folder
    without shards and for shard 0, which a message does not distinguish.
    """
    jobs = messages.where(f.col("properties").getItem("timeline").isNotNull())
    return jobs.select(*_of_message()).mapInArrow(timeline_rows.timelines_of_messages, SCHEMA)


def _of_message() -> list[Column]:
    def text_of(name: str) -> Column:
        return f.col("properties").getItem(name)

    shard = f.split(text_of("UNIQ_KEY"), "-").getItem(1).cast("int")
    size = f.coalesce(text_of("body-bytes").cast("int"), f.col("bodySize"))
    return [
        f.col("host"),
        f.when(shard > 0, f.format_string("shard-%03d", shard)).alias("shard"),
        text_of("KEYS").cast("long").alias("id"),
        f.col("tube"),
        text_of("pri").cast("long").alias("priority"),
        text_of("ttr").cast("long").alias("ttr"),
        size.alias("body_size"),
        f.lit("deleted").alias("state"),
        *(text_of(name).cast("long").alias(name) for name in COUNTERS),
        text_of("timeline").alias("timeline"),
        _end_number(text_of("TAGS")).alias("ended"),
    ]
