"""The `tube-metrics` job: rates, percentiles and depth of each tube in windows of time.

window_counts.py counts the events of windows. This module adds the windows without events.

Percentiles are exact (nearest rank), so they do not depend on the division of rows among tasks.
They need about 30 bytes of memory for each job of the fullest window of a tube.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.jobs.cached import computed_once
from beanstalkd_py.pipeline.jobs.durations import microseconds_of, since_1970
from beanstalkd_py.pipeline.jobs.window_counts import BEFORE, COUNTS, STATES, TIMES, counts_of

COLUMNS = ("host", "tube", "body_size", "wait_s", "finish_s", "events", "states")
"""Columns needed of timelines."""
PERCENTILES = (50, 90, 99)
MOST_ROWS = 10_000_000
_SECOND = 1_000_000
_TUBE = ("host", "tube")


def tube_metrics(
    timelines: DataFrame,
    window: str = "1 minute",
    since: datetime | None = None,
    most_rows: int = MOST_ROWS,
) -> DataFrame:
    """Return a row for each host, tube and window, from the tube's first event to its last.

    `window` is a duration in Spark's syntax (`10 seconds`, `1 hour`); windows begin at multiples of
    it since 1970 in UTC. Events before `since`, a time with a zone, have no rows but count for
    depth. Events are counted by this call, bounded ones in the window of their earliest possible
    time. Jobs whose full entry was removed have the tube null.

    docs/spark/jobs.md describes the columns. Counts and jobs are long, rates and durations double;
    percentiles are null in windows without such jobs.

    Raises PipelineUsageError for an invalid `window` and for more than `most_rows` rows.
    """
    length = microseconds_of("window", window)
    counts = computed_once(counts_of(timelines, length, since_1970("since", since)))
    _check_rows(counts, window, length, most_rows)
    return rows_of(counts, length)


def _check_rows(counts: DataFrame, window: str, length: int, most_rows: int) -> None:
    of_tubes = counts.where(f.col("start") > BEFORE).groupBy(*_TUBE)
    row_counts = of_tubes.agg(((f.max("start") - f.min("start")) / length + 1).alias("rows"))
    total = row_counts.agg(f.sum("rows")).first()
    rows = int(total[0]) if total is not None and total[0] is not None else 0
    if rows > most_rows:
        raise PipelineUsageError(
            f"windows of {window} make {rows} rows, more than {most_rows}; give a longer window, or"
            " a later since"
        )


def rows_of(counts: DataFrame, length: int) -> DataFrame:
    """Sum up the depths of `counts_of`, and repeat a window until the next one with events."""
    order = Window.partitionBy(*_TUBE).orderBy("start")
    depths = {state: f.sum(state).over(order) for state in STATES}
    known = counts.withColumns({**depths, "next": f.lead("start").over(order)})
    until = f.coalesce(f.col("next") - length, f.col("start"))
    starts = f.explode(f.sequence("start", until, f.lit(length)))
    windows = known.where(f.col("start") > BEFORE).select("*", starts.alias("window"))
    return windows.select(
        *_TUBE,
        f.timestamp_micros("window").alias("window_start"),
        f.timestamp_micros(f.col("window") + length).alias("window_end"),
        *(_of_first(f.col(name), 0).alias(name) for name in COUNTS),
        *(_per_second(name, length) for name in ("puts", "deletes")),
        *(column for name in TIMES for column in _percentiles(name)),
        sum((f.col(state) for state in STATES[:-1]), start=f.lit(0)).alias("depth"),
        *STATES,
    )


def _of_first(value: Column, otherwise: int | None) -> Column:
    """Return a value in windows with events, `otherwise` in repeated ones."""
    return f.when(f.col("window") == f.col("start"), value).otherwise(f.lit(otherwise))


def _per_second(name: str, length: int) -> Column:
    return (_of_first(f.col(name), 0) / f.lit(length / _SECOND)).alias(f"{name}_per_s")


def _percentiles(name: str) -> list[Column]:
    times = f.col(f"{name}_times")
    columns = []
    for percent in PERCENTILES:
        # In whole numbers, because 0.99 * n may be rounded up.
        rank = f.floor((f.size(times) * percent + 99) / 100).cast("int")
        columns.append(_of_first(f.get(times, rank - 1), None).alias(f"{name}_p{percent}_s"))
    last = f.get(times, f.size(times) - 1)
    return [*columns, _of_first(last, None).alias(f"{name}_max_s")]
