"""Counts the events of each tube in windows of time: events, durations and changes of state.

An event with bounds counts in the window of its earliest possible time, as does an unknown
duration.

The result has windows with events only, and a window BEFORE for everything before the first.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from beanstalkd_py.pipeline.jobs.timeline_rows import END_EVENTS

STATES = ("ready", "reserved", "delayed", "buried", "ready_or_reserved", "unknown")
EVENTS = {
    "puts": "put",
    "reserves": "reserve",
    "releases": "release",
    "timeouts": "timeout",
    "buries": "bury",
    "kicks": "kick",
    "deletes": "delete",
    "truncates": "truncate",
    "moves": "move",
    "expires": "expire",
    "dead_letters": "dead-letter",
    "discards": "discard",
}
"""Events by the columns that count them."""
TIMES = {"wait": ("reserve",), "finish": END_EVENTS}
"""Durations from the put to the first of these events."""
COUNTS = (*EVENTS, "put_bytes", *(f"{name}_unknown" for name in TIMES))
BEFORE = -(2**63)
"""Start of the window before all others."""
_MARK = {
    "start": "long",
    "event": "string",
    "was": "string",
    "now": "string",
    "bytes": "long",
    **dict.fromkeys(TIMES, "double"),
    **{f"{name}_unknown": "boolean" for name in TIMES},
}
"""Fields of a mark, which a job adds to the window at `start`."""


def counts_of(timelines: DataFrame, length: int, since: int | None) -> DataFrame:
    """Return a row for each host, tube and window with events; times are microseconds.

    Columns: host, tube; start long; those of COUNTS long; wait_times, finish_times array<double>,
    sorted; those of STATES long: jobs that entered the state, minus those that left it.
    """
    marks = f.explode(_marks(length, since)).alias("mark")
    marked = timelines.select("host", "tube", marks).select("host", "tube", "mark.*")
    return marked.groupBy("host", "tube", "start").agg(
        *(_count(f.col("event") == event).alias(name) for name, event in EVENTS.items()),
        f.coalesce(f.sum("bytes"), f.lit(0)).alias("put_bytes"),
        *(_count(f.col(f"{name}_unknown")).alias(f"{name}_unknown") for name in TIMES),
        *(f.sort_array(f.collect_list(name)).alias(f"{name}_times") for name in TIMES),
        *(_net_change(state).alias(state) for state in STATES),
    )


def _count(condition: Column) -> Column:
    return f.count(f.when(condition, 1))


def _net_change(state: str) -> Column:
    return _count(f.col("now") == state) - _count(f.col("was") == state)


def _mark(start: Column, **values: Column) -> Column:
    fields = {"start": start, **values}
    return f.struct(
        *(fields.get(name, f.lit(None)).cast(kind).alias(name) for name, kind in _MARK.items())
    )


def _marks(length: int, since: int | None) -> Column:
    def start(at: Column) -> Column:
        time = f.unix_micros(at)
        window = time - f.pmod(time, f.lit(length))
        return window if since is None else f.when(time < since, BEFORE).otherwise(window)

    events, states = f.col("events"), f.col("states")

    def of_event(event: Column) -> Column:
        size = f.when(event["event"] == "put", f.col("body_size"))
        return _mark(start(event["at"]), event=event["event"], bytes=size)

    def of_state(state: Column, index: Column) -> Column:
        was = f.get(states, index - 1)["state"]
        return _mark(start(state["at"]), was=was, now=state["state"])

    def of_time(name: str, names: tuple[str, ...]) -> Column:
        first = f.get(f.filter(events, lambda event: event["event"].isin(*names)), f.lit(0))
        value = f.col(f"{name}_s")
        values = {name: value, f"{name}_unknown": value.isNull()}
        return f.when(first.isNotNull(), _mark(start(first["at"]), **values))

    times = f.array(*(of_time(name, names) for name, names in TIMES.items()))
    changes = f.transform(states, of_state)
    return f.concat(f.transform(events, of_event), changes, f.array_compact(times))
