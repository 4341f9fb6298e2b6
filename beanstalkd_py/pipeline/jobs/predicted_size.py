"""How large binlogs will be: what servers write now, and the rule by which they give files up.

The model, for each shard:

- Rates are those of the last day, or of as long as there are files: what is written without
  compaction, and by how much what is alive grows or shrinks, by puts and ends. They stay as they
  are. A live job takes its full entry, its last short one, and 84 bytes that are kept for its end.
  A growth of no more than two jobs is none: that much depends on where the files end.
- A shard is pinned if its oldest job is more than 1.5 times as old as any became that ended in that
  time. Then it is taken to stay: nothing goes before compaction has to make room.
- Else files go as they came, and what is kept beside live jobs stays as much as it is.
- Compaction keeps all entries below three times what is alive, but for one file. It is taken to be
  there, although a shard goes up to that and falls back, to what is alive at the least.
- What is written to is a file at the end, so that there is always about one.

So the prediction is rather the most that there will be, within about one file. Loads that change
are not foreseen, nor that a job that pins a shard ends.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from beanstalkd_py.pipeline.jobs.durations import microseconds_of
from beanstalkd_py.pipeline.jobs.file_measures import SHORT_BYTES, measures_of

KEPT_PER_ALIVE = 3
"""Compaction begins when what is dead is twice what is alive (csrc/binlog/compact.c)."""
PINNED_PER_LIFE = 1.5
_EDGE_JOBS = 2
_DAY_US = 86_400_000_000
_SHARD = ("host", "shard")


def predicted_size(entries: DataFrame, horizon: str = "7 days") -> DataFrame:
    """A row for each host and shard: how large it is `horizon` after its last event.

    `horizon` is a length as Spark's. The rates are of the files behind the last one that was
    complete a day before the last event, or behind the first one, or of all if there is one.

    Columns: host, shard string; last_event_at timestamp; files long; bytes_now, live_bytes long: as
    in `binlog_health`, summed up; growth_bytes_per_day, live_growth_bytes_per_day double: what is
    written without compaction, and by how much what is alive grows; null when all has happened at
    one time; pinned boolean; bytes_in_horizon long: what entries will take then, at the most; null
    without a growth.

    Raises PipelineUsageError: `horizon` is no length.
    """
    ahead = microseconds_of("horizon", horizon)
    rates = _rates(_based(measures_of(entries))).withColumn("pinned", _is_pinned())
    return rates.select(
        *_SHARD,
        f.timestamp_micros("now").alias("last_event_at"),
        *("files", "bytes_now", "live_bytes"),
        _per_day("written").alias("growth_bytes_per_day"),
        _per_day("live_growth").alias("live_growth_bytes_per_day"),
        "pinned",
        _in_horizon(ahead).alias("bytes_in_horizon"),
    ).orderBy(*_SHARD)


def _based(measures: DataFrame) -> DataFrame:
    """With `counts`: whether a file is of the time that is looked at, which begins at `begin`."""
    shard = Window.partitionBy(*_SHARD)
    so_far = shard.orderBy("file_number")
    timed = measures.withColumns(
        {
            "end": f.max(f.unix_micros("last_event_at")).over(so_far),
            "now": f.max(f.unix_micros("last_event_at")).over(shard),
            "is_only": f.count("*").over(shard) == 1,
        }
    )
    is_old = f.col("end") <= f.col("now") - _DAY_US
    last_old = f.max(f.when(is_old, f.col("file_number"))).over(shard)
    base = f.coalesce(last_old, f.min("file_number").over(shard))
    at_base = f.col("file_number") == f.col("base")
    # A file may have nothing but copies, of which it is not known when they were made.
    end_of_base = f.coalesce("end", f.min(f.unix_micros("first_event_at")).over(shard))
    begin = f.when(f.col("is_only"), f.unix_micros("first_event_at")).when(at_base, end_of_base)
    return timed.withColumn("base", base).withColumns(
        {"counts": f.col("is_only") | (f.col("file_number") > f.col("base")), "begin": begin}
    )


def _rates(files: DataFrame) -> DataFrame:
    """Of each shard, what has been written and what has ended, and how long that took."""
    written = f.col("bytes") - (f.col("full_bytes") - f.col("put_bytes"))
    came = f.col("put_bytes") + f.col("puts") * SHORT_BYTES
    went = f.col("ended_bytes") + f.col("ends") * SHORT_BYTES
    counted = f.col("counts")
    grown = f.sum(f.when(counted, came - went))
    one_job = f.try_divide(f.sum(f.when(counted, came)), f.sum(f.when(counted, f.col("puts"))))
    is_edge = f.coalesce(f.abs(grown) <= one_job * _EDGE_JOBS, f.lit(False))
    return files.groupBy(*_SHARD).agg(
        f.max("now").alias("now"),
        f.count("*").alias("files"),
        f.sum("bytes").alias("bytes_now"),
        f.max("bytes").alias("file_bytes"),
        f.sum("live_bytes").alias("live_bytes"),
        f.sum("live_jobs").alias("live_jobs"),
        f.min("oldest.created_at_ns").alias("oldest_ns"),
        f.max(f.when(f.col("counts"), f.col("longest_ns"))).alias("longest_ns"),
        f.sum(f.when(f.col("counts"), written)).alias("written"),
        f.when(is_edge, f.lit(0)).otherwise(grown).alias("live_growth"),
        (f.max("now") - f.max("begin")).alias("span"),
    )


def _is_pinned() -> Column:
    age = f.col("now") * 1000 - f.col("oldest_ns")
    longest = f.coalesce("longest_ns", f.lit(0)) * PINNED_PER_LIFE
    return f.coalesce(age > longest, f.lit(False))


def _per_day(name: str) -> Column:
    return f.when(f.col("span") > 0, f.col(name) * f.lit(float(_DAY_US)) / f.col("span"))


def _in_horizon(ahead: int) -> Column:
    def then(now: Column, growth: str) -> Column:
        return now + _per_day(growth) * f.lit(ahead / _DAY_US)

    alive = f.col("live_bytes") + f.col("live_jobs") * SHORT_BYTES
    alive_then = f.greatest(then(alive, "live_growth"), f.lit(0.0))
    everything = then(f.col("bytes_now"), "written")
    as_much = then(f.col("bytes_now"), "live_growth")
    kept = f.when(f.col("pinned"), everything).otherwise(as_much)
    most = alive_then * KEPT_PER_ALIVE + f.col("file_bytes")
    one_file = f.least(everything, f.col("file_bytes"))
    predicted = f.greatest(f.least(kept, most), alive_then, one_file)
    return f.when(f.col("span") > 0, f.round(predicted).cast("long"))
