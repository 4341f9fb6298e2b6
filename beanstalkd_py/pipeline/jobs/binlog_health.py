"""The `binlog-health` job: live and dead bytes of each binlog file, and the jobs that keep it.

A server removes files from the oldest on, as soon as no live job has its full entry there.
Compaction copies such entries to the end once dead bytes are twice the live bytes.

A later entry of the same job decides whether an entry is live, so entries are first grouped by job
over all files of a shard, by the rules of recovery: a job is live if its last full entry has no end
after it; its last full entry and its last short entry after that count. The first full entry of a
job is a put unless it is a copy, or older than the last event of the file before, because then the
file with the put was removed.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from beanstalkd_py.pipeline.sources.read_modes import CORRUPT

COLUMNS = (
    *("host", "shard", "file", "file_number", "offset", "kind", "id", "tube"),
    *("created_at_ns", "event_time_ns", "state", "is_copy", "size", CORRUPT),
)
"""Columns needed of entries."""
_FILE = ("host", "shard", "file_number")
_JOB = ("host", "shard", "id", "created_at_ns")
_SUMS = ("put_bytes", "live_bytes", "live_jobs")


def binlog_health(entries: DataFrame) -> DataFrame:
    """Return a row for each host, shard and file with entries, in this order.

    `live_bytes` and `live_jobs` equal `live_bytes` and `jobs` of `binlog stats`. `entries` and
    `bytes` count entries of jobs only, neither the highest id nor preallocated space.

    Columns: host, shard, file string; file_number, entries, bytes long; put_bytes long: first full
    entries of jobs; copy_bytes long: full entries written by compaction; short_bytes long;
    live_jobs long: live jobs whose last full entry is in this file; live_bytes long: these entries
    and the last short entries of live jobs; dead_bytes long: the rest; oldest_job_id long,
    oldest_job_tube string, oldest_job_put_at timestamp: the live job here that was put first;
    pinned_by long: live jobs in this and older files of the shard, which all have to end or be
    copied before the file can be removed; write_amplification double: bytes of all entries of the
    shard up to the end of this file, divided by put_bytes up to there (null without puts);
    first_event_at, last_event_at timestamp: of puts and short entries, as far as known; damage
    long: unreadable places, in mode PERMISSIVE.
    """
    return health_of(entries).orderBy(*_FILE)


def health_of(entries: DataFrame) -> DataFrame:
    """Return the rows of `binlog_health` in no order."""
    so_far = Window.partitionBy("host", "shard").orderBy("file_number")

    def until_here(name: str) -> Column:
        return f.sum(name).over(so_far)

    written, put = until_here("bytes"), until_here("put_bytes")
    oldest = f.col("oldest")
    return _measures(entries).select(
        *("host", "shard", "file", "file_number", "entries", "bytes", "put_bytes"),
        (f.col("full_bytes") - f.col("put_bytes")).alias("copy_bytes"),
        *("short_bytes", "live_jobs", "live_bytes"),
        (f.col("bytes") - f.col("live_bytes")).alias("dead_bytes"),
        oldest["id"].alias("oldest_job_id"),
        oldest["tube"].alias("oldest_job_tube"),
        _time("oldest.created_at_ns").alias("oldest_job_put_at"),
        until_here("live_jobs").alias("pinned_by"),
        f.when(put > 0, written / put).alias("write_amplification"),
        _time("least(first_short_ns, first_put_ns)").alias("first_event_at"),
        _time("greatest(last_short_ns, last_put_ns)").alias("last_event_at"),
        "damage",
    )


def _measures(entries: DataFrame) -> DataFrame:
    totals = _totals(entries)
    of_jobs = _job_measures(_jobs(entries), totals)
    return totals.join(of_jobs, [*_FILE], "left").na.fill(0, [*_SUMS])


def _time(nanoseconds: str) -> Column:
    return f.expr(f"timestamp_micros({nanoseconds} div 1000)")


def _totals(entries: DataFrame) -> DataFrame:
    size, full = f.col("size"), f.col("kind") == "full"
    return entries.groupBy(*_FILE, "file").agg(
        f.count("id").alias("entries"),
        *(
            f.coalesce(f.sum(value), f.lit(0)).alias(name)
            for name, value in {
                "bytes": size,
                "full_bytes": f.when(full, size),
                "short_bytes": f.when(~full, size),
            }.items()
        ),
        f.count(CORRUPT).alias("damage"),
        f.min(f.when(~full, f.col("event_time_ns"))).alias("first_short_ns"),
        f.max(f.when(~full, f.col("event_time_ns"))).alias("last_short_ns"),
        f.max("event_time_ns").alias("last_ns"),
    )


def _job_measures(jobs: DataFrame, totals: DataFrame) -> DataFrame:
    by_file = Window.partitionBy("host", "shard").orderBy("file_number")
    before = by_file.rowsBetween(Window.unboundedPreceding, -1)
    files = totals.select(*_FILE, f.max("last_ns").over(before).alias("begun_ns"))
    placed = jobs.withColumn("file_number", f.col("first_full.file_number"))
    begun = placed.join(f.broadcast(files), [*_FILE], "left")
    parts = begun.select("host", "shard", f.explode(_parts()).alias("part"))
    return (
        parts.select("host", "shard", "part.*")
        .groupBy(*_FILE)
        .agg(
            *(f.sum(name).alias(name) for name in _SUMS),
            f.min("oldest").alias("oldest"),
            f.min("put_ns").alias("first_put_ns"),
            f.max("put_ns").alias("last_put_ns"),
        )
    )


def _jobs(entries: DataFrame) -> DataFrame:
    full, ended = f.col("kind") == "full", f.col("state") == "deleted"
    place = ("file_number", "offset", "size")

    def last(condition: Column, *columns: str) -> Column:
        return f.max(f.when(condition, f.struct(*place, *columns)))

    return (
        entries.where(f.col("id").isNotNull())
        .groupBy(*_JOB)
        .agg(
            f.min(f.when(full, f.struct(*place, "is_copy"))).alias("first_full"),
            last(full & ~ended, "tube").alias("last_full"),
            last(~full & ~ended).alias("last_short"),
            last(ended).alias("end"),
        )
    )


def _parts() -> Column:
    """Return an array of what a job adds to the measures of its files."""
    first, full, short, end = (
        f.col(name) for name in ("first_full", "last_full", "last_short", "end")
    )
    is_live = full.isNotNull() & (end.isNull() | _is_after(full, end))
    oldest = f.struct("created_at_ns", "id", full["tube"].alias("tube"))
    is_new = f.col("created_at_ns") >= f.coalesce("begun_ns", f.lit(0))
    is_put = first.isNotNull() & ~first["is_copy"] & is_new
    parts = (
        _part(is_put, first, put_bytes=first["size"], put_ns=f.col("created_at_ns")),
        _part(is_live, full, live_bytes=full["size"], live_jobs=f.lit(1), oldest=oldest),
        _part(is_live & _is_after(short, full), short, live_bytes=short["size"]),
    )
    return f.array_compact(f.array(*parts))


def _is_after(one: Column, other: Column) -> Column:
    """Compare the positions of two entries; false if the first one is null."""
    positions = (f.struct(each["file_number"], each["offset"]) for each in (one, other))
    return f.coalesce(one.isNotNull() & (next(positions) > next(positions)), f.lit(False))


def _part(condition: Column, place: Column, **measures: Column) -> Column:
    """Return a part, null if the condition is false."""

    def measure(name: str, kind: str) -> Column:
        return measures.get(name, f.lit(None)).cast(kind).alias(name)

    part = f.struct(
        place["file_number"].alias("file_number"),
        *(measure(name, "long") for name in (*_SUMS, "put_ns")),
        measure("oldest", "struct<created_at_ns:long,id:long,tube:string>"),
    )
    return f.when(condition, part)
