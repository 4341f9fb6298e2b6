"""Counts the events of each tube in windows of time: events, durations and changes of state.

The result has windows with events only, and a window BEFORE for everything before the first.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

STATES = ("ready", "reserved", "delayed", "buried")
EVENTS = {
    "puts": "put",
    "reserves": "reserve",
    "releases": "release",
    "timeouts": "timeout",
    "buries": "bury",
    "kicks": "kick",
    "deletes": "delete",
    "truncates": "truncate",
}
"""Events by the columns that count them."""
COUNTS = (*EVENTS, "put_bytes")
TIMES = ("wait", "finish")
BEFORE = -(2**63)
"""Start of the window before all others."""
_MARK = {
    "start": "long",
    "event": "string",
    "was": "string",
    "now": "string",
    "bytes": "long",
    "wait": "double",
    "finish": "double",
}
"""What a job adds to the window at `start`."""
_HELD = ("touch", "release", "timeout", "return", "bury", "delete")
"""Events that only happen to a reserved job."""


def counts_of(timelines: DataFrame, length: int, since: int | None) -> DataFrame:
    """Return a row for each host, tube and window with events; times are microseconds.

    Columns: host, tube; start long; those of COUNTS long; wait_times, finish_times array<double>,
    sorted; those of STATES long: jobs that entered the state, minus those that left it.
    """
    marks = f.explode(_marks(length, since)).alias("mark")
    each = timelines.select("host", "tube", marks).select("host", "tube", "mark.*")
    return each.groupBy("host", "tube", "start").agg(
        *(_count(f.col("event") == event).alias(name) for name, event in EVENTS.items()),
        f.coalesce(f.sum("bytes"), f.lit(0)).alias("put_bytes"),
        *(f.sort_array(f.collect_list(name)).alias(f"{name}_times") for name in TIMES),
        *(_net_change(state).alias(state) for state in STATES),
    )


def _count(condition: Column) -> Column:
    return f.count(f.when(condition, 1))


def _net_change(state: str) -> Column:
    return _count(f.col("now") == state) - _count(f.col("was") == state)


def _mark(start: Column, **values: Column) -> Column:
    given = {"start": start, **values}
    return f.struct(
        *(given.get(name, f.lit(None)).cast(kind).alias(name) for name, kind in _MARK.items())
    )


def _marks(length: int, since: int | None) -> Column:
    def start(at: Column) -> Column:
        time = f.unix_micros(at)
        window = time - f.pmod(time, f.lit(length))
        return window if since is None else f.when(time < since, BEFORE).otherwise(window)

    events = f.col("events")

    def of_event(event: Column, index: Column) -> Column:
        before = f.get(events, index - 1)
        was = f.when(index == 0, _state_before(event)).otherwise(_state_after(before))
        size = f.when(event["event"] == "put", f.col("body_size"))
        return _mark(
            start(event["at"]), event=event["event"], was=was, now=_state_after(event), bytes=size
        )

    def of_time(name: str, at: Column) -> Column:
        value = f.col(f"{name}_s")
        return f.when(at.isNotNull() & value.isNotNull(), _mark(start(at), **{name: value}))

    others = f.array(
        f.when(_found_there(), _mark(f.lit(BEFORE), now=_first_state())),
        of_time("wait", f.col("first_reserve_at")),
        of_time("finish", f.col("end_at")),
    )
    return f.concat(f.transform(events, of_event), f.array_compact(others))


def _found_there() -> Column:
    """Whether the job existed before its first known event."""
    return f.coalesce(f.get("events", f.lit(0))["event"] != "put", f.col("state") != "deleted")


def _first_state() -> Column:
    first = f.get("events", f.lit(0))
    return f.when(f.size("events") == 0, f.col("state")).otherwise(_state_before(first))


def _state_after(event: Column) -> Column:
    name = event["event"]
    return (
        f.when(name.isin("reserve", "touch"), "reserved")
        .when(name == "bury", "buried")
        .when(name.isin("delete", "truncate"), None)
        .when(name.isin("put", "release") & (event["delay"] > 0), "delayed")
        .otherwise("ready")
    )


def _state_before(event: Column) -> Column:
    """Return the state before an event, the most likely one if there are several."""
    name = event["event"]
    return (
        f.when(name == "put", None)
        .when(name.isin(*_HELD), "reserved")
        .when(name == "due", "delayed")
        .when(name == "kick", "buried")
        .otherwise("ready")
    )
