"""What a report shows of binlogs, added up by Spark: files, shards, violations, who wrote them."""

from __future__ import annotations

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from beanstalkd_py.pipeline.jobs.binlog_health import binlog_health
from beanstalkd_py.pipeline.jobs.cached import computed_once
from beanstalkd_py.pipeline.jobs.verify import verify
from beanstalkd_py.pipeline.report.data import (
    BinlogFile,
    Disk,
    Shard,
    Violation,
    Violations,
)
from beanstalkd_py.pipeline.report.span import moment_of

MOST_FILES = 48
MOST_SHARDS = 16
MOST_VIOLATIONS = 12
_MOST_KINDS = 20
_SHARD = ("host", "shard")


def disk_of(entries: DataFrame) -> Disk:
    """Return the files with most dead bytes and the largest shards."""
    health = computed_once(binlog_health(entries))
    totals = health.groupBy(*_SHARD).agg(
        f.count("*").alias("files"),
        f.sum("bytes").alias("bytes"),
        f.sum("live_bytes").alias("live_bytes"),
        f.max_by("write_amplification", "file_number").alias("write_amplification"),
    )
    shards = computed_once(totals)
    largest = shards.orderBy(f.desc("bytes"), *_SHARD).limit(MOST_SHARDS).collect()
    put_at = f.unix_micros("oldest_job_put_at").alias("oldest_job_put_at")
    wasteful = health.withColumn("oldest_job_put_at", put_at)
    wasteful = wasteful.orderBy(f.desc("dead_bytes"), *_SHARD, "file_number").limit(MOST_FILES)
    files = wasteful.orderBy(*_SHARD, "file_number").collect()
    row = shards.agg(f.count("*").alias("shards"), f.sum("files").alias("files")).collect()[0]
    return Disk(
        tuple(map(_shard, largest)),
        tuple(map(_file, files)),
        (row["files"] or 0) - len(files),
        row["shards"] - len(largest),
    )


def _shard(row: Row) -> Shard:
    return Shard(
        row["host"],
        row["shard"],
        row["files"],
        row["bytes"],
        row["live_bytes"],
        row["write_amplification"],
    )


def _file(row: Row) -> BinlogFile:
    return BinlogFile(
        row["host"],
        row["shard"],
        row["file"],
        row["bytes"],
        row["live_bytes"],
        row["live_jobs"],
        row["oldest_job_id"],
        row["oldest_job_tube"],
        moment_of(row["oldest_job_put_at"]),
    )


def violations_of(entries: DataFrame) -> Violations:
    """How many of each kind, and the first."""
    found = computed_once(verify(entries))
    kinds = found.groupBy("what").count().orderBy(f.desc("count"), "what")
    counted = [(row["what"], row["count"]) for row in kinds.limit(_MOST_KINDS).collect()]
    left = 0
    if len(counted) == _MOST_KINDS:
        left = found.count() - sum(number for _, number in counted)
    if left:
        counted.append(("of other kinds", left))
    order = ("host", "shard", "file", "offset", "id", "what")
    first = found.orderBy(*order).limit(MOST_VIOLATIONS).collect() if counted else []
    return Violations(
        tuple(counted), tuple(Violation(*(row[name] for name in order)) for row in first)
    )


def servers_of(entries: DataFrame) -> tuple[str, ...]:
    """Who wrote the entries: this server gives each a checksum, C beanstalkd none of its own."""
    kinds = {row["checksum"] for row in entries.select("checksum").distinct().collect()}
    servers = []
    if "right" in kinds:
        servers.append("beanstalkd_py")
    if kinds & {"none", "foreign"}:
        servers.append("C beanstalkd")
    return tuple(servers)
