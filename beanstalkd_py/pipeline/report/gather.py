"""What a report shows, out of binlogs and history stores: each job of Spark once, rows of the page.

Lives are computed once and kept by Spark meanwhile, on disk if there is no room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.binlogs.frame import read_binlog
from beanstalkd_py.pipeline.inputs import Inputs, sort_inputs
from beanstalkd_py.pipeline.jobs import binlog_health, verify
from beanstalkd_py.pipeline.jobs.cached import computed_once
from beanstalkd_py.pipeline.jobs.dead_letters import dead_letters
from beanstalkd_py.pipeline.jobs.durations import microseconds_of
from beanstalkd_py.pipeline.report.data import DeadGroup, Disk, Input, ReportData, Violations
from beanstalkd_py.pipeline.report.gather_disk import disk_of, servers_of, violations_of
from beanstalkd_py.pipeline.report.gather_lives import (
    all_windows,
    summary_of,
    totals_of,
    tubes_of,
)
from beanstalkd_py.pipeline.report.span import microseconds, moment_of, span_of
from beanstalkd_py.pipeline.sources.read_modes import CORRUPT
from beanstalkd_py.pipeline.stores.frame import read_store
from beanstalkd_py.pipeline.timelines_of import bodies_of, lives_of

MOST_DEAD = 15
_UNUSED = ("delay", "ttr", "priority", "releases", "touches", "ready_s", "reserved_s")


def gather(
    spark: SparkSession,
    inputs: Sequence[str],
    begin: datetime | None,
    end: datetime | None,
    window: str | None,
) -> ReportData:
    """All of a report. Arguments and errors are those of `write_report`."""
    low, high = microseconds("begin", begin), microseconds("end", end)
    if low is not None and high is not None and high <= low:
        raise PipelineUsageError(f"the end {end} is not behind the begin {begin}; turn them round")
    length = None if window is None else microseconds_of("window", window)
    given = sort_inputs(spark, inputs)
    lives = lives_of(spark, given).drop(*_UNUSED).persist()
    try:
        found = _of_lives(spark, given, lives, low, high, length)
        return replace(found, unread=_unread(spark, given))
    finally:
        lives.unpersist()


def _of_lives(
    spark: SparkSession,
    inputs: Inputs,
    lives: DataFrame,
    begin: int | None,
    end: int | None,
    window: int | None,
) -> ReportData:
    summary = summary_of(lives, begin, end)
    span = None
    if summary.first is not None and summary.last is not None:
        # First of all, because a window that is too short is told here.
        span = span_of(summary.first, summary.last, window, begin, end)
    servers, disk, violations = _of_binlogs(spark, inputs)
    found = ReportData(
        inputs=_shown(inputs),
        made_at=datetime.now(UTC),
        servers=servers,
        hosts=summary.hosts,
        disk=disk,
        violations=violations,
    )
    if span is None:
        return found
    windows = all_windows(lives, span)
    tubes, more_tubes = tubes_of(lives, span)
    totals = totals_of(lives, span)
    dead, more_groups, more_jobs = _dead(spark, inputs, lives)
    return replace(
        found,
        windows=windows,
        lives=summary.lives,
        earlier=totals.earlier,
        incomplete=summary.incomplete,
        certainty=summary.certainty,
        wait=totals.wait,
        finish=totals.finish,
        tubes=tubes,
        more_tubes=more_tubes,
        more_puts=sum(windows.puts) - sum(sum(tube.windows.puts) for tube in tubes),
        dead=dead,
        more_dead_groups=more_groups,
        more_dead_jobs=more_jobs,
    )


def _shown(inputs: Inputs) -> tuple[Input, ...]:
    binlogs = (Input(path, "binlog") for path in inputs.binlogs)
    return (*binlogs, *(Input(path, "history") for path in inputs.stores))


def _of_binlogs(
    spark: SparkSession, inputs: Inputs
) -> tuple[tuple[str, ...], Disk | None, Violations | None]:
    if not inputs.binlogs:
        return ("beanstalkd_py",), None, None

    def entries(columns: Sequence[str]) -> DataFrame:
        return read_binlog(spark, inputs.binlogs, columns=columns)

    servers = servers_of(entries(["checksum"]))
    if inputs.stores:
        servers = tuple(sorted({*servers, "beanstalkd_py"}, reverse=True))
    violations = violations_of(entries(verify.COLUMNS))
    return servers, disk_of(entries(binlog_health.COLUMNS)), violations


def _unread(spark: SparkSession, inputs: Inputs) -> int:
    """Places that are left out, looked for by themselves: what Spark keeps tells no observer."""
    frames = []
    if inputs.binlogs:
        frames.append(read_binlog(spark, inputs.binlogs, columns=[CORRUPT]))
    if inputs.stores:
        frames.append(read_store(spark, inputs.stores, columns=[CORRUPT]))
    return sum(frame.agg(f.count(CORRUPT)).collect()[0][0] for frame in frames)


def _dead(
    spark: SparkSession, inputs: Inputs, lives: DataFrame
) -> tuple[tuple[DeadGroup, ...], int, int]:
    """Those with most jobs, and how many more kinds and jobs there are."""
    groups = computed_once(dead_letters(lives, bodies_of(spark, inputs)))
    count, jobs = groups.agg(f.count("*"), f.coalesce(f.sum("jobs"), f.lit(0))).collect()[0]
    order = (f.desc("jobs"), f.asc("host"), f.asc("tube"), f.asc("signature"))
    last = f.unix_micros("last_event_at").alias("last_event_at")
    rows = groups.withColumn("last_event_at", last).orderBy(*order).limit(MOST_DEAD).collect()
    shown = tuple(
        DeadGroup(
            row["host"],
            row["tube"],
            row["signature"],
            row["jobs"],
            row["buried"],
            row["timed_out"],
            row["oldest_s"],
            moment_of(row["last_event_at"]),
            row["sample_id"],
            row["sample_body"],
        )
        for row in rows
    )
    return shown, count - len(rows), jobs - sum(group.jobs for group in shown)
