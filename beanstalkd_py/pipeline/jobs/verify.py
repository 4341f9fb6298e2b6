"""`verify`: what entries say of jobs and no server writes, over all files of any folders.

`binlog verify` judges a folder as a server reads it. This looks at what holds over all files there
are, archived ones too, of any number of hosts at once.

What is found, a row each: host, shard, file, offset, id, what. It says:

- `has no full entry before it`: nothing says the job's tube and body. Where the oldest files are
  gone that is so of jobs that have ended or were copied into a later file, and only of those;
- `is in two shards`: of one host;
- `is there again behind its end`;
- `its reserves go back` (or timeouts, releases, buries, kicks): counters never do;
- `its tube changes` (or TTR, size of the body).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from beanstalkd_py.pipeline.jobs.timeline_columns import COUNTERS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMNS = (
    *("host", "shard", "file", "file_number", "offset", "kind", "id", "created_at_ns"),
    *("tube", "ttr", "body_size", "state", *COUNTERS),
)
"""What is needed of entries."""

LIFE = ("id", "host", "created_at_ns")
ORDER = ("shard", "file_number", "offset")
FIRST_FILE = 1
NO_FULL = "has no full entry before it"
_LASTING = {"ttr": "its TTR changes", "body_size": "the size of its body changes"}
_SHARD, _STATE, _TUBE = "shard_before", "state_before", "tube_before"


def verify(entries: DataFrame) -> DataFrame:
    """What is wrong with entries of beanstalkd_binlog that have COLUMNS at least.

    No row comes out of what servers write. Places that could not be read are left out here: the
    corrupt column has them.
    """
    of_jobs = entries.where(f.col("id").isNotNull())
    compared = of_jobs.select(*COLUMNS, *_before(), *_of_life())
    judged = compared.withColumn("what", f.explode(f.array_compact(f.array(*_violations()))))
    # Whether the oldest files are there is asked only of the few that this can excuse.
    firsts = of_jobs.groupBy("host", "shard").agg(f.min("file_number").alias("first_file"))
    found = judged.join(f.broadcast(firsts), ["host", "shard"])
    excused = (f.col("what") == NO_FULL) & f.col("excusable") & (f.col("first_file") > FIRST_FILE)
    return found.where(~excused).select("host", "shard", "file", "offset", "id", "what")


def _before() -> list[Column]:
    """What the entry before says of the same life."""
    order = Window.partitionBy(*LIFE).orderBy(*ORDER)
    lagged = [
        f.lag(name).over(order).alias(f"{name}_before")
        for name in ("shard", "state", *_LASTING, *COUNTERS)
    ]
    until = order.rowsBetween(Window.unboundedPreceding, -1)
    return [*lagged, f.last("tube", ignorenulls=True).over(until).alias(_TUBE)]


def _of_life() -> list[Column]:
    """Whether the job ends, or has a full entry somewhere: then the first one may be gone."""
    excuse = ((f.col("state") == "deleted") | (f.col("kind") == "full")).cast("int")
    here = Window.partitionBy(*LIFE).orderBy(*ORDER)
    whole = here.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    return [(f.max(excuse).over(whole) == 1).alias("excusable")]


def _violations() -> list[Column]:
    """Each is null where it does not hold."""
    same = f.col(_SHARD) == f.col("shard")
    is_new = f.col(_SHARD).isNull() | ~same
    tube_changes = f.col("tube") != f.col(_TUBE)
    found = [
        (is_new & (f.col("kind") == "short"), NO_FULL),
        (f.col(_SHARD).isNotNull() & ~same, "is in two shards"),
        (same & (f.col(_STATE) == "deleted"), "is there again behind its end"),
        (tube_changes, "its tube changes"),
    ]
    found += [
        (same & (f.col(name) < f.col(f"{name}_before")), f"its {name} go back") for name in COUNTERS
    ]
    found += [(f.col(name) != f.col(f"{name}_before"), what) for name, what in _LASTING.items()]
    return [f.when(condition, f.lit(what)) for condition, what in found]
