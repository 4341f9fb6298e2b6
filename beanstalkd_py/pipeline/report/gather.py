"""Gathers the data of a report by Spark. Timelines are computed once and cached meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.frames import read_binlog, read_store
from beanstalkd_py.pipeline.inputs import Inputs, sort_inputs
from beanstalkd_py.pipeline.jobs import binlog_health, verify
from beanstalkd_py.pipeline.jobs.cached import computed_once
from beanstalkd_py.pipeline.jobs.dead_letters import dead_letters
from beanstalkd_py.pipeline.jobs.durations import microseconds_of, since_1970
from beanstalkd_py.pipeline.report.data import (
    BinlogFile,
    DeadGroup,
    Disk,
    Input,
    ReportData,
    Shard,
    Violation,
    Violations,
)
from beanstalkd_py.pipeline.report.gather_timelines import (
    all_windows,
    summary_of,
    totals_of,
    tubes_of,
)
from beanstalkd_py.pipeline.report.span import moment_of, span_of
from beanstalkd_py.pipeline.sources.read_modes import CORRUPT
from beanstalkd_py.pipeline.timelines_of import bodies_of, timelines_of

Record = TypeVar("Record")

MOST_DEAD = 15
MOST_FILES = 48
MOST_SHARDS = 16
MOST_VIOLATIONS = 12
_MOST_KINDS = 20
_SHARD = ("host", "shard")
_UNUSED = ("delay", "ttr", "priority", "releases", "touches", "ready_s", "reserved_s")


def gather(
    spark: SparkSession,
    inputs: Sequence[str],
    begin: datetime | None,
    end: datetime | None,
    window: str | None,
) -> ReportData:
    """Return the data of a report. Arguments and errors are those of `write_report`."""
    low, high = since_1970("begin", begin), since_1970("end", end)
    if low is not None and high is not None and high <= low:
        raise PipelineUsageError(f"the end {end} is not after the begin {begin}; swap them")
    length = None if window is None else microseconds_of("window", window)
    given = sort_inputs(spark, inputs)
    timelines = timelines_of(spark, given).drop(*_UNUSED).persist()
    try:
        found = _of_timelines(spark, given, timelines, low, high, length)
        return replace(found, faults=_faults(spark, given))
    finally:
        timelines.unpersist()


def _of_timelines(
    spark: SparkSession,
    inputs: Inputs,
    timelines: DataFrame,
    begin: int | None,
    end: int | None,
    window: int | None,
) -> ReportData:
    first, last, counts = summary_of(timelines, begin, end)
    span = None
    if first is not None and last is not None:
        # Raises an error for a too short window before anything is computed.
        span = span_of(first, last, window, begin, end)
    found = ReportData(
        inputs=(
            *(Input(path, "binlog") for path in inputs.binlogs),
            *(Input(path, "history") for path in inputs.stores),
        ),
        made_at=datetime.now(UTC),
        **_of_binlogs(spark, inputs),
        **counts,
    )
    if span is None:
        return found
    windows = all_windows(timelines, span)
    tubes, more_tubes = tubes_of(timelines, span)
    return replace(
        found,
        windows=windows,
        tubes=tubes,
        more_tubes=more_tubes,
        more_puts=sum(windows.puts) - sum(sum(tube.windows.puts) for tube in tubes),
        **totals_of(timelines, span),
        **_dead(spark, inputs, timelines),
    )


def _of_binlogs(spark: SparkSession, inputs: Inputs) -> dict[str, Any]:
    """Return the fields of ReportData about binlogs."""
    if not inputs.binlogs:
        return {"servers": ("beanstalkd_py",)}

    def entries(columns: Sequence[str]) -> DataFrame:
        return read_binlog(spark, inputs.binlogs, columns=columns)

    servers = servers_of(entries(["checksum"]))
    if inputs.stores:
        servers = tuple(sorted({*servers, "beanstalkd_py"}, reverse=True))
    return {
        "servers": servers,
        "violations": violations_of(entries(verify.COLUMNS)),
        "disk": disk_of(entries(binlog_health.COLUMNS)),
    }


def _faults(spark: SparkSession, inputs: Inputs) -> int:
    """Count faults in a pass of its own, because cached rows do not report observations."""
    frames = []
    if inputs.binlogs:
        frames.append(read_binlog(spark, inputs.binlogs, columns=[CORRUPT]))
    if inputs.stores:
        frames.append(read_store(spark, inputs.stores, columns=[CORRUPT]))
    return sum(frame.agg(f.count(CORRUPT)).collect()[0][0] for frame in frames)


def _dead(spark: SparkSession, inputs: Inputs, timelines: DataFrame) -> dict[str, Any]:
    """Return the fields of ReportData about dead letters."""
    groups = computed_once(dead_letters(timelines, bodies_of(spark, inputs)))
    count, jobs = groups.agg(f.count("*"), f.coalesce(f.sum("jobs"), f.lit(0))).collect()[0]
    order = (f.desc("jobs"), f.asc("host"), f.asc("tube"), f.asc("signature"))
    rows = _in_micros(groups, "last_event_at").orderBy(*order).limit(MOST_DEAD).collect()
    return {
        "dead": tuple(_record(DeadGroup, row) for row in rows),
        "more_dead_groups": count - len(rows),
        "more_dead_jobs": jobs - sum(row["jobs"] for row in rows),
    }


def _in_micros(rows: DataFrame, name: str) -> DataFrame:
    """Convert a time for `_record`: Spark's own conversion loses the time zone."""
    return rows.withColumn(name, f.unix_micros(name))


def _record(kind: type[Record], row: Row) -> Record:
    """Make a record of the columns with the names of its fields."""
    values = {field.name: row[field.name] for field in fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name.endswith("_at"):
            values[name] = moment_of(values[name])
    return kind(**values)


def disk_of(entries: DataFrame) -> Disk:
    health = computed_once(binlog_health.binlog_health(entries))
    shards = computed_once(
        health.groupBy(*_SHARD).agg(
            f.count("*").alias("files"),
            f.sum("bytes").alias("size"),
            f.sum("live_bytes").alias("live_bytes"),
            f.max_by("write_amplification", "file_number").alias("write_amplification"),
        )
    )
    largest = shards.orderBy(f.desc("size"), *_SHARD).limit(MOST_SHARDS).collect()
    wasteful = _in_micros(health, "oldest_job_put_at").withColumnRenamed("bytes", "size")
    wasteful = wasteful.orderBy(f.desc("dead_bytes"), *_SHARD, "file_number").limit(MOST_FILES)
    files = wasteful.orderBy(*_SHARD, "file_number").collect()
    row = shards.agg(f.count("*").alias("shards"), f.sum("files").alias("files")).collect()[0]
    return Disk(
        tuple(_record(Shard, row) for row in largest),
        tuple(_record(BinlogFile, row) for row in files),
        (row["files"] or 0) - len(files),
        row["shards"] - len(largest),
    )


def violations_of(entries: DataFrame) -> Violations:
    found = computed_once(verify.verify(entries))
    kinds = found.groupBy("what").count().orderBy(f.desc("count"), "what")
    counted = [(row["what"], row["count"]) for row in kinds.limit(_MOST_KINDS).collect()]
    left = 0
    if len(counted) == _MOST_KINDS:
        left = found.count() - sum(number for _, number in counted)
    if left:
        counted.append(("of other kinds", left))
    order = ("host", "shard", "file", "offset", "id", "what")
    first = found.orderBy(*order).limit(MOST_VIOLATIONS).collect() if counted else []
    return Violations(tuple(counted), tuple(_record(Violation, row) for row in first))


def servers_of(entries: DataFrame) -> tuple[str, ...]:
    """Return the servers that wrote the entries; only this package writes checksums."""
    kinds = {row["checksum"] for row in entries.select("checksum").distinct().collect()}
    servers = []
    if "right" in kinds:
        servers.append("beanstalkd_py")
    if kinds & {"none", "foreign"}:
        servers.append("C beanstalkd")
    return tuple(servers)
