"""The `verify` job: violations, which are inconsistencies between entries that no server writes.

`binlog verify` judges a folder as a server reads it. This job compares all files, archived ones
too, of any number of hosts.

Each row is a violation: host, shard, file, offset, id, and `what`, a text of `_violations`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from beanstalkd_py.pipeline.jobs.timeline_rows import COUNTERS

COLUMNS = (
    *("host", "shard", "file", "file_number", "offset", "kind", "id", "created_at_ns"),
    *("tube", "ttr", "body_size", "state", *COUNTERS),
)
"""Columns needed of entries."""

_JOB = ("id", "host", "created_at_ns")
ORDER = ("shard", "file_number", "offset")
FIRST_FILE = 1
NO_FULL = "has no full entry before it"
_LASTING = {"ttr": "its TTR changes", "body_size": "the size of its body changes"}
_SHARD, _STATE, _TUBE = "shard_before", "state_before", "tube_before"


def verify(entries: DataFrame) -> DataFrame:
    """Return the violations in entries with at least COLUMNS, except faults."""
    of_jobs = entries.where(f.col("id").isNotNull())
    compared = of_jobs.select(*COLUMNS, *_before(), *_of_job())
    judged = compared.withColumn("what", f.explode(f.array_compact(f.array(*_violations()))))
    # Only a few violations depend on whether the oldest files are there.
    firsts = of_jobs.groupBy("host", "shard").agg(f.min("file_number").alias("first_file"))
    joined = judged.join(f.broadcast(firsts), ["host", "shard"])
    excused = (f.col("what") == NO_FULL) & f.col("excusable") & (f.col("first_file") > FIRST_FILE)
    return joined.where(~excused).select("host", "shard", "file", "offset", "id", "what")


def _before() -> list[Column]:
    order = Window.partitionBy(*_JOB).orderBy(*ORDER)
    lagged = [
        f.lag(name).over(order).alias(f"{name}_before")
        for name in ("shard", "state", *_LASTING, *COUNTERS)
    ]
    until = order.rowsBetween(Window.unboundedPreceding, -1)
    return [*lagged, f.last("tube", ignorenulls=True).over(until).alias(_TUBE)]


def _of_job() -> list[Column]:
    """Return whether the job has ended or was copied into a later file.

    If the oldest files were removed, such a job may lack its first full entry.
    """
    excuse = ((f.col("state") == "deleted") | (f.col("kind") == "full")).cast("int")
    here = Window.partitionBy(*_JOB).orderBy(*ORDER)
    whole = here.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    return [(f.max(excuse).over(whole) == 1).alias("excusable")]


def _violations() -> list[Column]:
    """Return the violations of an entry; each is null if it does not apply."""
    same = f.col(_SHARD) == f.col("shard")
    is_new = f.col(_SHARD).isNull() | ~same
    tube_changes = f.col("tube") != f.col(_TUBE)
    violations = [
        (is_new & (f.col("kind") == "short"), NO_FULL),
        (f.col(_SHARD).isNotNull() & ~same, "is in two shards"),
        (same & (f.col(_STATE) == "deleted"), "is there again behind its end"),
        (tube_changes, "its tube changes"),
    ]
    violations += [
        (same & (f.col(name) < f.col(f"{name}_before")), f"its {name} go back") for name in COUNTERS
    ]
    violations += [
        (f.col(name) != f.col(f"{name}_before"), what) for name, what in _LASTING.items()
    ]
    return [f.when(condition, f.lit(what)) for condition, what in violations]
