"""`timelines`: the lives of jobs, a row each, with all that has happened to them.

A life is (host, id, created_at_ns): ids begin again in a folder that was emptied. Its entries may
be in any files, so they are brought together by a shuffle, without their bodies, and told one life
after another (life_columns.py).

Columns of what comes out:

- host, shard (of the last entry), id, tube (null if no full entry was read);
- priority (the last), delay (of the put; null if that is not known), ttr, in seconds; body_size;
- put_at, state (ready, reserved, buried, delayed or deleted, as the last entry says), end (deleted,
  truncated or null), end_at, first_reserve_at, last_at;
- reserves, timeouts, releases, buries, kicks, touches: how often;
- wait_s (from the put to the first reserve, a delay included; null if only bounds of that are
  known), finish_s (to the end), ready_s, reserved_s, delayed_s, buried_s (in each state, until
  last_at);
- time_kind: the least certain kind of time among the events: exact, derived or bounded;
- complete: whether nothing is missing from the beginning;
- events: in order; each has event, at, kind, until, priority and delay.

Times of a server of ours are exact. Those of C beanstalkd's binlogs, and of reserves that a server
without a history does not write, are derived from deadlines (of a job that was touched, a derived
reserve is its last touch), or only bounded: not before `at`, not after `until`, if that is known.
Of untold events of one kind at most 1000 are told between two entries; the counters say how many
there were. Copies that compaction made are no events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from beanstalkd_py.pipeline._columns import lib
from beanstalkd_py.pipeline.jobs.timeline_columns import CERTAINTIES, COUNTERS, SCHEMA
from beanstalkd_py.pipeline.jobs.timelines_of_entries import SIZE_AT, STATES, lives_of_entries
from beanstalkd_py.pipeline.jobs.timelines_of_messages import lives_of_messages

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMNS = (
    *("host", "shard", "file_number", "offset", "kind", "id", "tube", "priority", "delay", "ttr"),
    *("body_size", "state", "truncated", "checksum"),
    *("reserves", "timeouts", "releases", "buries", "kicks"),
    *("created_at_ns", "event_time_ns", "event_time_kind", "event_time_until"),
    *("deadline_at_ns", "old_deadline_at_ns", "reserved_at_ns"),
)
"""What is needed of entries."""

MESSAGE_COLUMNS = ("host", "tube", "bodySize", "properties")
"""What is needed of messages of a history."""

LIFE = ("id", "host", "created_at")
"""In the order in which rows are told apart soonest."""


def timelines(entries: DataFrame) -> DataFrame:
    """Lives of jobs, out of entries of beanstalkd_binlog that have COLUMNS at least."""
    packed = entries.where(f.col("id").isNotNull()).select(*_packed())
    ordered = packed.repartition(*LIFE).sortWithinPartitions(*LIFE, "file_number", "offset")
    return ordered.mapInArrow(lives_of_entries, SCHEMA)


def _packed() -> list[Column]:
    """Few columns of fixed width, so that a shuffle has less to carry."""
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
    ]


def _pair(upper: str, lower: str) -> Column:
    """Two numbers of 32 bits in one."""
    return f.shiftleft(f.col(upper), 32).bitwiseOR(f.col(lower)).alias(f"{upper}_{lower}")


def _flags() -> Column:
    """The words of an entry and the size of its body in one number (csrc/columns/columns.h)."""
    conditions = (
        (f.col("checksum") == "right", lib.BC_FLAGS_SOUND),
        (f.col("truncated"), lib.BC_FLAGS_TRUNCATED),
        (f.col("kind") == "full", lib.BC_FLAGS_FULL),
    )
    flags = f.shiftleft(f.col("body_size").cast("long"), SIZE_AT)
    flags = flags + _number("state", STATES)
    flags = flags + _number("event_time_kind", CERTAINTIES) * lib.BC_FLAGS_CERTAINTY
    for condition, flag in conditions:
        flags = flags + f.when(condition, flag).otherwise(0)
    return flags


def _number(column: str, words: tuple[str, ...]) -> Column:
    """The place of a word among words."""
    number = f.when(f.col(column) == words[0], 0)
    for place, word in enumerate(words[1:], 1):
        number = number.when(f.col(column) == word, place)
    return number


def timelines_of_messages(messages: DataFrame) -> DataFrame:
    """The same of jobs that are in a history, out of its messages with MESSAGE_COLUMNS at least.

    Messages without a timeline, which are no jobs', are left out. A message does not tell whether
    its job was in a folder that is whole or in its first shard: `shard` is null then.
    """
    jobs = messages.where(f.col("properties").getItem("timeline").isNotNull())
    return jobs.select(*_of_message()).mapInArrow(lives_of_messages, SCHEMA)


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
        (text_of("TAGS") == "truncated").alias("truncated"),
    ]
