"""Gathers the data of a report by Spark. Timelines are computed once and cached meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, TypeVar

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.damage_count import fault_count
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
from beanstalkd_py.pipeline.report.gather_timelines import of_span, summary_of
from beanstalkd_py.pipeline.report.span import moment_of, span_of
from beanstalkd_py.pipeline.sources.read_modes import CORRUPT
from beanstalkd_py.pipeline.timelines_of import bodies_of, timelines_of

Record = TypeVar("Record")

MOST_DEAD = 15
MOST_FILES = 48
MOST_SHARDS = 16
MOST_VIOLATIONS = 12
_SHARD = ("host", "shard")
_UNUSED = (
    *("delay", "ttr", "priority", "releases", "touches"),
    *("wait_min_s", "wait_max_s", "finish_min_s", "finish_max_s"),
    *("ready_s", "reserved_s", "delayed_s", "buried_s", "ready_or_reserved_s"),
)


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
    paths = sort_inputs(spark, inputs)
    # Queries about the files fill the pauses in which the other ones are planned.
    thread = ThreadPoolExecutor(1)
    try:
        of_files = thread.submit(_of_files, spark, paths)
        timelines = timelines_of(spark, paths).drop(*_UNUSED).persist()
        try:
            first, last, counts = summary_of(timelines, low, high)
            in_span: dict[str, Any] = {}
            if first is not None and last is not None:
                in_span, now = of_span(timelines, span_of(first, last, length, low, high))
                in_span |= _dead(spark, paths, timelines, now)
            return ReportData(
                inputs=(
                    *(Input(path, "binlog") for path in paths.binlogs),
                    *(Input(path, "history") for path in paths.stores),
                ),
                made_at=datetime.now(UTC),
                **of_files.result(),
                **counts,
                **in_span,
            )
        finally:
            timelines.unpersist()
    finally:
        # After an error the session ends, and with it the query of the thread.
        thread.shutdown(wait=False)


def _of_files(spark: SparkSession, inputs: Inputs) -> dict[str, Any]:
    """Return the fields of ReportData about the files.

    Faults are not observed while timelines are read, because cached rows report no observations.
    """
    values: dict[str, Any] = {"servers": ("beanstalkd_py",), "faults": 0}
    if inputs.binlogs:
        values = _of_binlogs(spark, inputs)
    if inputs.stores:
        messages = read_store(spark, inputs.stores, columns=[CORRUPT])
        values["faults"] += messages.agg(fault_count()).collect()[0][0]
        values["servers"] = tuple(sorted({*values["servers"], "beanstalkd_py"}, reverse=True))
    return values


def _of_binlogs(spark: SparkSession, inputs: Inputs) -> dict[str, Any]:
    def entries(columns: Sequence[str]) -> DataFrame:
        return read_binlog(spark, inputs.binlogs, columns=columns)

    checked = entries(["checksum", CORRUPT])
    faults, checksums = checked.agg(fault_count(), f.collect_set("checksum")).collect()[0]
    return {
        "servers": servers_of(checksums),
        "faults": faults,
        "violations": violations_of(entries(verify.COLUMNS)),
        "disk": disk_of(entries(binlog_health.COLUMNS)),
    }


def _dead(
    spark: SparkSession, inputs: Inputs, timelines: DataFrame, now: datetime | None
) -> dict[str, Any]:
    """Return the fields of ReportData about dead letters."""
    groups = dead_letters(timelines, bodies_of(spark, inputs), now=now)
    order = (f.desc("jobs"), f.asc("host"), f.asc("tube"), f.asc("signature"))
    rows = _in_micros(groups, "last_event_at").orderBy(*order).limit(MOST_DEAD).collect()
    values: dict[str, Any] = {"dead": tuple(_record(DeadGroup, row) for row in rows)}
    if len(rows) == MOST_DEAD:
        count, jobs = groups.agg(f.count("*"), f.sum("jobs")).collect()[0]
        values["more_dead_groups"] = count - len(rows)
        values["more_dead_jobs"] = jobs - sum(row["jobs"] for row in rows)
    return values


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
    health = computed_once(binlog_health.health_of(entries))
    shards = health.groupBy(*_SHARD).agg(
        f.count("*").alias("files"),
        f.sum("bytes").alias("size"),
        f.sum("live_bytes").alias("live_bytes"),
        f.max_by("write_amplification", "file_number").alias("write_amplification"),
    )
    largest = shards.orderBy(f.desc("size"), *_SHARD).limit(MOST_SHARDS).collect()
    wasteful = _in_micros(health, "oldest_job_put_at").withColumnRenamed("bytes", "size")
    wasteful = wasteful.orderBy(f.desc("dead_bytes"), *_SHARD, "file_number").limit(MOST_FILES)
    files = wasteful.orderBy(*_SHARD, "file_number").collect()
    return Disk(
        tuple(_record(Shard, row) for row in largest),
        tuple(_record(BinlogFile, row) for row in files),
        health.count() - MOST_FILES if len(files) == MOST_FILES else 0,
        shards.count() - MOST_SHARDS if len(largest) == MOST_SHARDS else 0,
    )


def violations_of(entries: DataFrame) -> Violations:
    violations = verify.verify(entries)
    order = ("host", "shard", "file", "offset", "id", "what")
    first = violations.orderBy(*order).limit(MOST_VIOLATIONS).collect()
    if not first:
        return Violations()
    kinds = violations.groupBy("what").count().orderBy(f.desc("count"), "what").collect()
    return Violations(
        tuple((row["what"], row["count"]) for row in kinds),
        tuple(_record(Violation, row) for row in first),
    )


def servers_of(checksums: Sequence[str]) -> tuple[str, ...]:
    """Return the servers that wrote entries; only this package writes right checksums."""
    servers = []
    if "right" in checksums:
        servers.append("beanstalkd_py")
    if {"none", "foreign"} & set(checksums):
        servers.append("C beanstalkd")
    return tuple(servers)
