"""Aggregates timelines for a report by Spark. Times are microseconds since 1970."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f

from beanstalkd_py.pipeline.jobs.tube_metrics import COLUMNS as METRICS_COLUMNS
from beanstalkd_py.pipeline.jobs.tube_metrics import rows_of
from beanstalkd_py.pipeline.jobs.window_counts import counts_of
from beanstalkd_py.pipeline.report.data import STATES, Certainty, Percentiles, Tube, Windows
from beanstalkd_py.pipeline.report.span import Span, moment_of

MOST_TUBES = 25
_ACCURACY = 10_000
_SHARES = (0.5, 0.9, 0.99)
_OLD = 0.005
"""Share of the oldest jobs that is left out if that makes the span shorter by _SHORTER."""
_SHORTER = 3
_NAMES = tuple(each.name for each in fields(Windows) if each.name not in ("begin", "window_s"))
Tubes = Sequence[tuple[str, str | None]]
"""Hosts and names of tubes."""
_TOGETHER = ("", "")
"""In place of host and tube, for all tubes together; no tube has an empty name."""


def summary_of(
    timelines: DataFrame, begin: int | None, end: int | None
) -> tuple[int | None, int | None, dict[str, Any]]:
    """Return the first and last event in the span, and fields of ReportData about all jobs.

    Without `begin`, a few old jobs do not extend the span.
    """
    seen = timelines.withColumn("seen", f.filter("events", _in_time(begin, end)))
    seen = seen.where(f.size("seen") > 0)
    times = f.transform("seen", lambda event: f.unix_micros(event["at"]))
    row = seen.agg(
        f.min(f.array_min(times)).alias("first"),
        f.max(f.array_max(times)).alias("last"),
        f.percentile_approx(f.array_min(times), _OLD, _ACCURACY).alias("usual_first"),
        f.count("*").alias("jobs"),
        f.count(f.when(~f.col("complete"), 1)).alias("incomplete"),
        f.count_distinct("host").alias("hosts"),
        *(
            f.coalesce(f.sum(f.size(f.filter("seen", _of_kind(kind)))), f.lit(0)).alias(kind)
            for kind in ("exact", "derived", "bounded")
        ),
    ).collect()[0]
    first = row["first"]
    if begin is None and first is not None:
        usual = row["usual_first"]
        if (row["last"] - usual) * _SHORTER < row["last"] - first:
            first = usual
    counts = {name: row[name] for name in ("jobs", "incomplete", "hosts")}
    certainty = Certainty(row["exact"], row["derived"], row["bounded"])
    return first, row["last"], {**counts, "certainty": certainty}


def _in_time(begin: int | None, end: int | None) -> Any:
    def is_in(event: Column) -> Column:
        at = f.unix_micros(event["at"])
        after = f.lit(True) if begin is None else at >= begin
        return after if end is None else after & (at < end)

    return is_in


def _of_kind(kind: str) -> Any:
    return lambda event: event["kind"] == kind


def within(timelines: DataFrame, span: Span) -> DataFrame:
    """Move times before and after the span into one window each.

    Depth is then right from the beginning of the span, and no other windows are computed.
    """

    def clamped(time: Column) -> Column:
        at = f.unix_micros(time)
        before, behind = f.lit(span.begin - span.window), f.lit(span.end)
        return f.timestamp_micros(
            f.when(at < span.since, before).when(at >= span.until, behind).otherwise(at)
        )

    def all_clamped(name: str) -> Column:
        return f.transform(name, lambda each: each.withField("at", clamped(each["at"])))

    return timelines.withColumns({name: all_clamped(name) for name in ("events", "states")})


def of_span(timelines: DataFrame, span: Span) -> tuple[dict[str, Any], datetime | None]:
    """Return fields of ReportData about the span, and the time of the last event of all."""
    whole, top, more_tubes = _totals(timelines, span)
    windows, *of_top = _windows_of(timelines, [(row["host"], row["tube"]) for row in top], span)
    tubes = tuple(
        Tube(row["host"], row["tube"], each, _percentiles(row, "wait"), _percentiles(row, "finish"))
        for row, each in zip(top, of_top, strict=True)
    )
    values = {
        "windows": windows,
        "tubes": tubes,
        "more_tubes": more_tubes,
        "more_puts": sum(windows.puts) - sum(sum(tube.windows.puts) for tube in tubes),
        "earlier": whole["earlier"],
        **{name: _percentiles(whole, name) for name in ("wait", "finish")},
    }
    return values, moment_of(whole["last_at"])


def _totals(timelines: DataFrame, span: Span) -> tuple[Row, list[Row], int]:
    """Return a row of all jobs, rows of the tubes with most jobs, and the number of other tubes."""
    is_there = _is_in_span("last_at", span) | _is_in_span("put_at", span)
    is_earlier = f.unix_micros("put_at") < span.since
    sets: Any = [["host", "tube"], []]
    totals = timelines.groupingSets(sets, "host", "tube").agg(
        f.grouping("host").alias("is_whole"),
        f.count(f.when(is_there, 1)).alias("jobs"),
        f.count(f.when(is_earlier, 1)).alias("earlier"),
        f.unix_micros(f.max("last_at")).alias("last_at"),
        *_spreads(span),
    )
    order = (f.desc("is_whole"), f.desc("jobs"), f.asc("host"), f.asc_nulls_last("tube"))
    in_span = totals.where("is_whole = 1 or jobs > 0")
    whole, *top = in_span.orderBy(*order).limit(1 + MOST_TUBES).collect()
    others = in_span.count() - 1 - MOST_TUBES if len(top) == MOST_TUBES else 0
    return whole, top, others


def _windows_of(timelines: DataFrame, tubes: Tubes, span: Span) -> list[Windows]:
    """Return the windows of all tubes together, and of each of `tubes`, in one query."""
    columns = timelines.select(*METRICS_COLUMNS)
    jobs = columns.withColumns({"host": f.lit(_TOGETHER[0]), "tube": f.lit(_TOGETHER[1])})
    if tubes:
        jobs = jobs.unionByName(columns.where(_is_one_of(tubes)))
    start = f.unix_micros("window_start")
    windows = rows_of(counts_of(within(jobs, span), span.window, None), span.window)
    windows = windows.where((start >= span.begin - span.window) & (start < span.end))
    by_tube: dict[tuple[str, str | None], list[Row]] = {}
    for row in windows.select("host", "tube", start.alias("start"), *_NAMES).collect():
        by_tube.setdefault((row["host"], row["tube"]), []).append(row)
    return [_windows(by_tube.get(name, ()), span) for name in (_TOGETHER, *tubes)]


def _is_one_of(tubes: Tubes) -> Column:
    conditions = (
        (f.col("host") == host) & f.col("tube").eqNullSafe(f.lit(tube)) for host, tube in tubes
    )
    return reduce(lambda one, other: one | other, conditions)


def _windows(rows: Sequence[Row], span: Span) -> Windows:
    """Return all windows of the span for the rows of one tube."""
    at = {row["start"]: row for row in rows}
    columns: dict[str, list[Any]] = {name: [] for name in _NAMES}
    # Depths stay until the next window with events.
    known = at.get(span.begin - span.window)
    for start in range(span.begin, span.end, span.window):
        row = at.get(start)
        known = row or known
        for name, column in columns.items():
            if name in STATES:
                column.append(0 if known is None else known[name])
            elif name.endswith("_s"):
                column.append(None if row is None else row[name])
            else:
                column.append(0 if row is None else row[name])
    begin = moment_of(span.begin)
    assert begin is not None
    return Windows(
        begin, span.window_s, **{name: tuple(column) for name, column in columns.items()}
    )


def _is_in_span(name: str, span: Span) -> Column:
    return f.unix_micros(name).between(span.since, span.until - 1)


def _spreads(span: Span) -> list[Column]:
    spreads = []
    for name, at in (("wait", "first_reserve_at"), ("finish", "end_at")):
        seconds = f.when(_is_in_span(at, span), f.col(f"{name}_s"))
        shares = f.array(*map(f.lit, _SHARES))
        spreads.append(f.percentile_approx(seconds, shares, _ACCURACY).alias(name))
        spreads.append(f.max(seconds).alias(f"{name}_max"))
    return spreads


def _percentiles(row: Row, name: str) -> Percentiles:
    if row[name] is None:
        return Percentiles()
    p50_s, p90_s, p99_s = row[name]
    return Percentiles(p50_s, p90_s, p99_s, row[f"{name}_max"])
