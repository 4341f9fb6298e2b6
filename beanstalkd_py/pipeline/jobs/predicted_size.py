"""How large binlogs will be: what servers write now, and the rule by which they give files up.

The model, for each shard:

- What is written without compaction goes on as in the last day, or as long as there are files.
- So do puts and ends of jobs, so that what is alive grows or shrinks as it did. A live job takes
  its full entry, its last short one, and 84 bytes that are kept for its end.
- Nothing that is there is given up before compaction has to: as if the oldest jobs stayed. So this
  is rather too much where old files go by themselves.
- Compaction keeps all entries below three times what is alive, but for one file.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from beanstalkd_py.pipeline.jobs.file_measures import SHORT_BYTES, measures_of
from beanstalkd_py.pipeline.jobs.lengths import microseconds_of

KEPT_PER_ALIVE = 3
"""Compaction begins when what is dead is twice what is alive (csrc/compact.c)."""
_DAY_US = 86_400_000_000
_SHARD = ("host", "shard")


def predicted_size(entries: DataFrame, horizon: str = "7 days") -> DataFrame:
    """A row for each host and shard: how large it is `horizon` after its last event.

    `horizon` is a length as Spark's. The rates are of the files behind the last one that was
    complete a day before the last event, or behind the first one, or of all if there is one.

    Columns: host, shard string; last_event_at timestamp; files long; bytes_now, live_bytes long: as
    in `binlog_health`, summed up; growth_bytes_per_day, live_growth_bytes_per_day double: what is
    written without compaction, and by how much what is alive grows; null when all has happened at
    one time; bytes_in_horizon long: what entries will take then, null without a growth.

    Raises PipelineUsageError: `horizon` is no length.
    """
    ahead = microseconds_of("horizon", horizon)
    rates = _rates(measures_of(entries))
    return rates.select(
        *_SHARD,
        f.timestamp_micros("now").alias("last_event_at"),
        *("files", "bytes_now", "live_bytes"),
        _per_day(f.col("written")).alias("growth_bytes_per_day"),
        _per_day(f.col("live_growth")).alias("live_growth_bytes_per_day"),
        _in_horizon(ahead).alias("bytes_in_horizon"),
    ).orderBy(*_SHARD)


def _rates(measures: DataFrame) -> DataFrame:
    """What has been written and has ended behind each shard's base, and how long that took."""
    shard = Window.partitionBy(*_SHARD)
    now, last = f.unix_micros("last_event_at"), f.unix_micros("last_event_at")
    timed = measures.withColumn("now", f.max(now).over(shard))
    is_old = last <= f.col("now") - _DAY_US
    base = f.coalesce(
        f.max(f.when(is_old & (last < f.col("now")), f.col("file_number"))).over(shard),
        f.min("file_number").over(shard),
    )
    based = timed.withColumns({"base": base, "is_only": f.count("*").over(shard) == 1})
    at_base = (f.col("file_number") == f.col("base")) & ~f.col("is_only")
    counts = (f.col("file_number") > f.col("base")) | f.col("is_only")
    written = f.col("bytes") - (f.col("full_bytes") - f.col("put_bytes"))
    came = f.col("put_bytes") + f.col("puts") * SHORT_BYTES
    went = f.col("ended_bytes") + f.col("ends") * SHORT_BYTES
    start = f.when(at_base, last).when(f.col("is_only"), f.unix_micros("first_event_at"))
    return based.groupBy(*_SHARD).agg(
        f.max("now").alias("now"),
        f.count("*").alias("files"),
        f.sum("bytes").alias("bytes_now"),
        f.max("bytes").alias("file_bytes"),
        f.sum("live_bytes").alias("live_bytes"),
        f.sum("live_jobs").alias("live_jobs"),
        f.sum(f.when(counts, written)).alias("written"),
        f.sum(f.when(counts, came - went)).alias("live_growth"),
        (f.max("now") - f.max(start)).alias("span"),
    )


def _per_day(growth: Column) -> Column:
    return f.when(f.col("span") > 0, growth * f.lit(float(_DAY_US)) / f.col("span"))


def _in_horizon(ahead: int) -> Column:
    def then(name: str, now: Column) -> Column:
        return now + _per_day(f.col(name)) * f.lit(ahead / _DAY_US)

    alive = f.col("live_bytes") + f.col("live_jobs") * SHORT_BYTES
    alive_then = f.greatest(then("live_growth", alive), f.lit(0.0))
    everything = then("written", f.col("bytes_now"))
    most = alive_then * KEPT_PER_ALIVE + f.col("file_bytes")
    return f.round(f.least(everything, most)).cast("long")
