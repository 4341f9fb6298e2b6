"""What each binlog file has in it, and how much of that is still needed: numbers of bytes and jobs.

What becomes of an entry is said by later ones, perhaps in other files, so jobs are put together
over all files of a shard first. The rules are those of a start of the server: a job is there if it
has a full entry and none of its end behind that; its last full entry counts, and the last short one
behind it. What compaction wrote again is no put, also where the file with the put is gone: then the
put was before the last event of the file before. Knows nothing of what the numbers mean to anybody.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from beanstalkd_py.pipeline.sources.read_modes import CORRUPT

COLUMNS = (
    *("host", "shard", "file", "file_number", "offset", "kind", "id", "tube", "body_size"),
    *("created_at_ns", "event_time_ns", "state", "is_copy", "size", CORRUPT),
)
"""Of entries."""
FILE = ("host", "shard", "file_number")
LIFE = ("host", "shard", "id", "created_at_ns")
_JOBS_MEASURES = ("put_bytes", "puts", "live_bytes", "live_jobs", "ended_bytes", "ends")
_ALL_BEFORE = (Window.unboundedPreceding, -1)
_LINE_END = 2
"""Bytes of a body that its size does not count."""
SHORT_BYTES = 84
"""Of a short entry; of a full one before its name and body."""


def measures_of(entries: DataFrame) -> DataFrame:
    """A row for each host, shard and file.

    Columns: host, shard, file_number, file; entries long; bytes, full_bytes, short_bytes long;
    damage long: places that could not be read; first_event_at, last_event_at timestamp; put_bytes,
    puts long: of first full entries, those of puts; live_bytes, live_jobs long; oldest: struct of
    created_at_ns, id, tube of the live job here that was put first; ended_bytes, ends long: full
    entries, in whatever file, of jobs whose end is here; longest_ns long: the longest life of
    these. Events are those of short entries, and puts; compaction tells old ones again.
    """
    totals = _totals(entries)
    of_jobs = _of_jobs(_jobs(entries), totals)
    measures = totals.join(of_jobs, [*FILE], "left").na.fill(0, [*_JOBS_MEASURES])
    first = "least(first_short_ns, first_put_ns)"
    last = "greatest(last_short_ns, last_put_ns)"
    return measures.withColumns({"first_event_at": _time(first), "last_event_at": _time(last)})


def _time(nanoseconds: str) -> Column:
    return f.expr(f"timestamp_micros({nanoseconds} div 1000)")


def _totals(entries: DataFrame) -> DataFrame:
    size, full = f.col("size"), f.col("kind") == "full"
    return entries.groupBy(*FILE, "file").agg(
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


def _of_jobs(jobs: DataFrame, totals: DataFrame) -> DataFrame:
    """Per file what depends on jobs."""
    before = Window.partitionBy("host", "shard").orderBy("file_number").rowsBetween(*_ALL_BEFORE)
    files = totals.select(*FILE, f.max("last_ns").over(before).alias("begun_ns"))
    placed = jobs.withColumn("file_number", f.col("first_full.file_number"))
    begun = placed.join(f.broadcast(files), [*FILE], "left")
    parts = begun.select("host", "shard", f.explode(_parts()).alias("part"))
    return (
        parts.select("host", "shard", "part.*")
        .groupBy(*FILE)
        .agg(
            *(f.sum(name).alias(name) for name in _JOBS_MEASURES),
            f.min("oldest").alias("oldest"),
            f.max("longest_ns").alias("longest_ns"),
            f.min("put_ns").alias("first_put_ns"),
            f.max("put_ns").alias("last_put_ns"),
        )
    )


def _jobs(entries: DataFrame) -> DataFrame:
    """A row for each life in a shard: its first and last full entry, last short one, and end."""
    full, ended = f.col("kind") == "full", f.col("state") == "deleted"
    place = ("file_number", "offset", "size")

    def last(condition: Column, *columns: str) -> Column:
        return f.max(f.when(condition, f.struct(*place, *columns)))

    return (
        entries.where(f.col("id").isNotNull())
        .groupBy(*LIFE)
        .agg(
            f.min(f.when(full, f.struct(*place, "is_copy"))).alias("first_full"),
            last(full & ~ended, "tube").alias("last_full"),
            last(~full & ~ended).alias("last_short"),
            last(ended, "body_size", "event_time_ns").alias("end"),
        )
    )


def _parts() -> Column:
    """What a life adds to which files."""
    first, full, short, end = (
        f.col(name) for name in ("first_full", "last_full", "last_short", "end")
    )
    is_live = full.isNotNull() & (end.isNull() | _behind(full, end))
    oldest = f.struct("created_at_ns", "id", full["tube"].alias("tube"))
    # A full entry that went with its file had a tube's name of a length that nobody knows.
    ended_size = f.coalesce(full["size"], end["body_size"] + SHORT_BYTES + _LINE_END)
    # In order: what was put before the last event of an older file was not put into this one.
    is_new = f.col("created_at_ns") >= f.coalesce("begun_ns", f.lit(0))
    is_put = first.isNotNull() & ~first["is_copy"] & is_new
    put_ns = f.col("created_at_ns")
    is_end = end.isNotNull() & ~is_live
    return reduce(
        f.concat,
        (
            _part(is_put, first, put_bytes=first["size"], puts=1, put_ns=put_ns),
            _part(is_live, full, live_bytes=full["size"], live_jobs=1, oldest=oldest),
            _part(is_live & _behind(short, full), short, live_bytes=short["size"]),
            _part(
                is_end,
                end,
                ended_bytes=ended_size,
                ends=1,
                longest_ns=end["event_time_ns"] - f.col("created_at_ns"),
            ),
        ),
    )


def _behind(one: Column, other: Column) -> Column:
    """Whether one place is behind the other; not if there is none."""
    places = (f.struct(each["file_number"], each["offset"]) for each in (one, other))
    return f.coalesce(one.isNotNull() & (next(places) > next(places)), f.lit(False))


def _part(condition: Column, place: Column, **measures: Column | int) -> Column:
    """A list of one, or of none if the condition is not true."""

    def given(name: str, kind: str) -> Column:
        value = measures.get(name)
        value = value if isinstance(value, Column) else f.lit(value)
        return value.cast(kind).alias(name)

    part = f.struct(
        place["file_number"].alias("file_number"),
        *(given(name, "long") for name in (*_JOBS_MEASURES, "longest_ns", "put_ns")),
        given("oldest", "struct<created_at_ns:long,id:long,tube:string>"),
    )
    return f.when(condition, f.array(part)).otherwise(f.slice(f.array(part), 1, 0))
