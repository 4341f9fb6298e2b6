"""The `dead-letters` job: buried jobs and those that timed out repeatedly, by signature.

The tasks that read bodies reduce them to signatures and samples (body_signature.py), for dead jobs
only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.jobs.body_signature import sample, signature
from beanstalkd_py.pipeline.jobs.cached import computed_once
from beanstalkd_py.pipeline.jobs.durations import since_1970

COLUMNS = ("host", "id", "tube", "put_at", "last_at", "state", "timeouts", "buries", "kicks")
"""Columns needed of timelines."""
BODY_COLUMNS = ("host", "kind", "id", "created_at_ns", "body")
"""Columns needed of entries for `bodies_of`."""
_KEY = ("host", "id", "put_at")
_SIGNED = "host string, id long, put_at timestamp, signature string, sample_body string"


def bodies_of(entries: DataFrame) -> DataFrame:
    """Return the bodies of full entries: host, id, created_at_ns, body."""
    full = entries.where(f.col("kind") == "full")
    return full.select("host", "id", "created_at_ns", "body")


def dead_letters(
    timelines: DataFrame, bodies: DataFrame, timeouts: int = 3, now: datetime | None = None
) -> DataFrame:
    """Return a row for each host, tube and signature of dead jobs, those with most jobs first.

    A job is dead if it is buried or timed out at least `timeouts` times, even if it has ended
    since. `bodies` has host, id, created_at_ns and body; duplicates are allowed. Dead jobs are
    computed by this call; the driver needs about 100 bytes for each.

    Columns: host, tube, signature string (null without a body); jobs, buried, timed_out long:
    numbers of jobs; buries, timeouts, kicks long: sums over the jobs; first_put_at, last_event_at
    timestamp; oldest_s double: seconds from the first put to `now`, or to the last event of all
    timelines; sample_id long, sample_body string: the job that was put first, and the first 200
    bytes of its body.

    Raises PipelineUsageError if `timeouts` is below 1 or `now` has no time zone.
    """
    if timeouts < 1:
        raise PipelineUsageError(f"timeouts is {timeouts}; give at least 1")
    now_us = since_1970("now", now)
    is_dead = (f.col("state") == "buried") | (f.col("timeouts") >= timeouts)
    dead = computed_once(timelines.select(*COLUMNS).where(is_dead))
    if now_us is None:
        now_us = timelines.agg(f.unix_micros(f.max("last_at"))).collect()[0][0]
    return _grouped(dead.join(_signed(dead, bodies), [*_KEY], "left"), timeouts, now_us)


def _signed(dead: DataFrame, bodies: DataFrame) -> DataFrame:
    """Return the signatures of dead jobs, whose keys are broadcast to the tasks with bodies."""
    put_at = f.expr("timestamp_micros(created_at_ns div 1000)").alias("put_at")
    known = bodies.where(f.col("body").isNotNull()).select("host", "id", put_at, "body")
    of_dead = known.join(f.broadcast(dead.select(*_KEY)), [*_KEY], "left_semi")
    return of_dead.mapInArrow(sign, _SIGNED).dropDuplicates([*_KEY])


def sign(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        bodies = batch.column("body").to_pylist()
        keys = [batch.column(name) for name in _KEY]
        signatures = pa.array([signature(body) for body in bodies], pa.string())
        samples = pa.array([sample(body) for body in bodies], pa.string())
        yield pa.RecordBatch.from_arrays(
            [*keys, signatures, samples], [*_KEY, "signature", "sample_body"]
        )


def _grouped(jobs: DataFrame, timeouts: int, now_us: int | None) -> DataFrame:
    first = f.min(f.struct("put_at", "id", "sample_body"))
    groups = jobs.groupBy("host", "tube", "signature").agg(
        f.count("*").alias("jobs"),
        f.count(f.when(f.col("state") == "buried", 1)).alias("buried"),
        f.count(f.when(f.col("timeouts") >= timeouts, 1)).alias("timed_out"),
        *(f.sum(name).alias(name) for name in ("buries", "timeouts", "kicks")),
        f.min("put_at").alias("first_put_at"),
        f.max("last_at").alias("last_event_at"),
        first.alias("first"),
    )
    age = (f.lit(now_us) - f.unix_micros("first_put_at")) / 1e6
    return groups.select(
        *("host", "tube", "signature", "jobs", "buried", "timed_out"),
        *("buries", "timeouts", "kicks", "first_put_at", "last_event_at"),
        age.alias("oldest_s"),
        f.col("first.id").alias("sample_id"),
        f.col("first.sample_body").alias("sample_body"),
    ).orderBy(f.desc("jobs"), "host", "tube", "signature")
