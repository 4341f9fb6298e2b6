"""`tube-metrics` against a plain computation and the log."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from pipeline.jobs.made import Made, log_reader, made

from beanstalkd_py import pipeline
from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.jobs import timelines as timelines_job
from beanstalkd_py.pipeline.jobs.durations import microseconds_of
from beanstalkd_py.pipeline.jobs.timelines import SCHEMA, timelines
from beanstalkd_py.pipeline.jobs.tube_metrics import COLUMNS, tube_metrics

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COUNTED = {
    "puts": "put",
    "reserves": "reserve",
    "releases": "release",
    "timeouts": "timeout",
    "buries": "bury",
    "kicks": "kick",
    "deletes": "delete",
    "truncates": "truncate",
}
STATES = ("ready", "reserved", "delayed", "buried")
EVER = "36500 days"

Row = dict[str, Any]


# --- the plain computation ---------------------------------------------------------------------


def state_after(event: str, delay: int | None) -> str | None:
    if event in ("put", "release"):
        return "delayed" if delay else "ready"
    after = {"reserve": "reserved", "touch": "reserved", "bury": "buried"}
    return None if event in ("delete", "truncate") else after.get(event, "ready")


def percentile(times: list[float], percent: int) -> float | None:
    """Nearest-rank percentile."""
    times = sorted(times)
    return times[ceil(Fraction(percent, 100) * len(times)) - 1] if times else None


def plain(job_timelines: list[Row], length: int) -> dict[tuple[str | None, int], Row]:
    """Compute the windows with one list of events for each tube."""
    happened: dict[str | None, list[tuple[int, Row, Row]]] = defaultdict(list)
    for timeline in job_timelines:
        for event in timeline["events"]:
            happened[timeline["tube"]].append((micros(event["at"]), timeline, event))
    found: dict[tuple[str | None, int], Row] = {}
    for tube, events in happened.items():
        by_window: dict[int, list[tuple[Row, Row]]] = defaultdict(list)
        for at, timeline, event in events:
            by_window[at - at % length].append((timeline, event))
        there: dict[int, str] = {}
        for start in range(min(by_window), max(by_window) + 1, length):
            inside = by_window.get(start, [])
            for timeline, event in inside:
                state = state_after(event["event"], event["delay"])
                if state is None:
                    del there[timeline["id"]]
                else:
                    there[timeline["id"]] = state
            found[tube, start] = row_of(
                inside, job_timelines, tube, start, length, Counter(there.values())
            )
    return found


def row_of(
    inside: list[tuple[Row, Row]],
    job_timelines: list[Row],
    tube: str | None,
    start: int,
    length: int,
    states: Counter[str],
) -> Row:
    events = Counter(event["event"] for _, event in inside)
    counts = {name: events[event] for name, event in COUNTED.items()}
    seconds = length / 1e6
    row: Row = {
        **counts,
        "put_bytes": sum(
            timeline["body_size"] for timeline, event in inside if event["event"] == "put"
        ),
        "puts_per_s": counts["puts"] / seconds,
        "deletes_per_s": counts["deletes"] / seconds,
        "depth": states.total(),
        **{state: states[state] for state in STATES},
    }
    of_tube = [timeline for timeline in job_timelines if timeline["tube"] == tube] if inside else []
    for name, at, value in (
        ("wait", "first_reserve_at", "wait_s"),
        ("finish", "end_at", "finish_s"),
    ):
        times = [
            timeline[value]
            for timeline in of_tube
            if timeline[value] is not None and start <= micros(timeline[at]) < start + length
        ]
        for percent in (50, 90, 99):
            row[f"{name}_p{percent}_s"] = percentile(times, percent)
        row[f"{name}_max_s"] = max(times, default=None)
    return row


def micros(at: datetime) -> int:
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (at - EPOCH) // timedelta(microseconds=1)


def rows_of(frame: Any) -> dict[tuple[str | None, int], Row]:
    found = {}
    for each in frame.collect():
        row = each.asDict()
        key = row.pop("tube"), micros(utc(row.pop("window_start")))
        assert key not in found
        found[key] = row
    return found


def utc(naive: datetime) -> datetime:
    return datetime.fromtimestamp(naive.timestamp(), UTC)


def same(found: dict[Any, Row], expected: dict[Any, Row], length: int) -> None:
    assert found.keys() == expected.keys()
    for key, row in found.items():
        assert row.pop("host") == "h"
        end = micros(utc(row.pop("window_end")))
        assert end == key[1] + length
        assert row == expected[key], key


# --- timelines -----------------------------------------------------------------------------------


def of_log(run: Made, monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """Return the timelines of the log, with exact times."""
    log_reader(monkeypatch)
    from workloadlib.event_log import read_log

    job_timelines: dict[int, Row] = {}
    for line in read_log(run.log):
        if line["event"] in ("begin", "end"):
            continue
        at = EPOCH + timedelta(microseconds=line["at_ns"] // 1000)
        timeline = job_timelines.get(line["id"])
        if timeline is None:
            timeline = job_timelines[line["id"]] = dict.fromkeys(timelines_row(), None)
            timeline |= {"host": "h", "id": line["id"], "tube": line["tube"], "put_at": at}
            timeline |= {"body_size": line["body_bytes"], "complete": True, "events": []}
        event = {"event": line["event"], "at": at, "kind": "exact", "until": None}
        timeline["events"].append({**event, "priority": line["pri"], "delay": line["delay"]})
        timeline["state"] = state_after(line["event"], line["delay"]) or "deleted"
        timeline["last_at"] = at
        waited = (at - timeline["put_at"]) / timedelta(seconds=1)
        if line["event"] == "reserve" and timeline["first_reserve_at"] is None:
            timeline |= {"first_reserve_at": at, "wait_s": waited}
        if timeline["state"] == "deleted":
            timeline |= {"end_at": at, "finish_s": waited}
    return list(job_timelines.values())


def timelines_row() -> list[str]:

    return SCHEMA.names


def frame_of(spark: Any, job_timelines: list[Row]) -> Any:
    return spark.createDataFrame([tuple(timeline.values()) for timeline in job_timelines], SCHEMA)


@pytest.mark.parametrize("window", ["10 milliseconds", "100 milliseconds", "7 seconds"])
def test_windows_match_the_log(spark, monkeypatch, window):
    job_timelines = of_log(made("history"), monkeypatch)
    length = microseconds_of("window", window)
    expected = plain(job_timelines, length)
    metrics = tube_metrics(frame_of(spark, job_timelines), window)
    same(rows_of(metrics), expected, length)
    assert len({tube for tube, _ in expected}) == 5
    assert sum(row["truncates"] for row in expected.values()) > 0
    if window == "10 milliseconds":
        assert any(not any(row[name] for name in COUNTED) for row in expected.values())


def test_any_partitioning_gives_the_same_windows(spark, monkeypatch):
    job_timelines = of_log(made("ours"), monkeypatch)
    one = rows_of(tube_metrics(frame_of(spark, job_timelines).coalesce(1), "50 milliseconds"))
    random.Random(5).shuffle(job_timelines)
    other = tube_metrics(frame_of(spark, job_timelines).repartition(7), "50 milliseconds")
    assert one == rows_of(other)


# --- from binlogs ------------------------------------------------------------------------------


def of_binlog(spark: Any, run: Made) -> Any:
    columns = list(timelines_job.COLUMNS)
    return timelines(pipeline.read_binlog(spark, str(run.binlog), columns=columns, host="h"))


@pytest.mark.parametrize("name", ["ours", "history", "c", "removed"])
def test_metrics_of_a_binlog_match_its_timelines(spark, name):
    """Also with derived and bounded times, and after files were removed."""
    job_timelines = of_binlog(spark, made(name)).select("id", *COLUMNS)
    length = 20_000
    whole = [row.asDict(recursive=True) for row in job_timelines.collect()]
    for timeline in whole:
        for key in ("first_reserve_at", "end_at"):
            timeline[key] = timeline[key] and utc(timeline[key])
        for event in timeline["events"]:
            event["at"] = utc(event["at"])
    same(rows_of(tube_metrics(job_timelines, "20 milliseconds")), plain(whole, length), length)
    assert (name == "removed") == any(timeline["tube"] is None for timeline in whole)


@pytest.mark.parametrize("name", ["ours", "history", "c"])
def test_metrics_of_a_binlog_match_the_log(spark, monkeypatch, name):
    """Only for events that a server writes, in one window."""
    job_timelines = of_log(made(name), monkeypatch)
    length = microseconds_of("window", EVER)
    expected = plain(job_timelines, length)
    found = rows_of(tube_metrics(of_binlog(spark, made(name)), EVER))
    written = ("puts", "buries", "kicks", "deletes", "truncates", "put_bytes", "depth", "buried")
    if name == "history":
        written = (*COUNTED, "put_bytes", "depth", *STATES)
    assert found.keys() == expected.keys()
    for key, row in found.items():
        assert {each: row[each] for each in written} == {
            each: expected[key][each] for each in written
        }, key


# --- incomplete timelines ------------------------------------------------------------------------


def timeline(number: int, events: list[tuple[str, int]], **more: Any) -> Row:
    """Make a timeline with events at seconds."""
    row = dict.fromkeys(timelines_row(), None)
    ends = events and events[-1][0] == "delete"
    row |= {"host": "h", "id": number, "tube": "t", "body_size": 10, "complete": True}
    row |= {"state": "deleted" if ends else "ready", "put_at": at(events[0][1]) if events else None}
    row["events"] = [
        {
            "event": event,
            "at": at(second),
            "kind": "exact",
            "until": None,
            "priority": 0,
            "delay": 0,
        }
        for event, second in events
    ]
    return row | more


def at(second: int) -> datetime:
    return EPOCH + timedelta(seconds=second)


def columns_of(frame: Any, *names: str) -> dict[int, tuple[Any, ...]]:
    return {
        key[1] // 10**6: tuple(row[name] for name in names) for key, row in rows_of(frame).items()
    }


def test_a_job_without_a_put_existed_before(spark):
    job_timelines = [
        timeline(1, [("put", 10), ("delete", 13)]),
        timeline(2, [("bury", 11), ("delete", 12)], tube="t", complete=False),
        timeline(3, [], state="delayed", complete=False),
    ]
    found = columns_of(
        tube_metrics(frame_of(spark, job_timelines), "1 second"),
        *("puts", "deletes", "depth", "ready", "reserved", "buried", "delayed"),
    )
    assert found == {
        10: (1, 0, 3, 1, 1, 0, 1),
        11: (0, 0, 3, 1, 0, 1, 1),
        12: (0, 1, 2, 1, 0, 0, 1),
        13: (0, 1, 1, 0, 0, 0, 1),
    }


def test_events_before_since_only_count_for_depth(spark):
    job_timelines = [timeline(1, [("put", 10)]), timeline(2, [("put", 1000), ("delete", 1002)])]
    frame = frame_of(spark, job_timelines)
    found = columns_of(tube_metrics(frame, "1 second", since=at(900)), "puts", "depth")
    assert found == {1000: (1, 2), 1001: (0, 2), 1002: (0, 1)}


def test_jobs_without_a_tube_have_rows_of_their_own(spark):
    job_timelines = [timeline(1, [("delete", 5)], tube=None), timeline(2, [("put", 5)])]
    found = rows_of(tube_metrics(frame_of(spark, job_timelines), "1 second"))
    assert {key: row["deletes"] for key, row in found.items()} == {
        (None, 5 * 10**6): 1,
        ("t", 5 * 10**6): 0,
    }


def test_no_timelines_give_no_rows(spark):
    assert rows_of(tube_metrics(spark.createDataFrame([], SCHEMA))) == {}


def test_windows_before_1970_begin_at_multiples_too(spark):
    found = columns_of(
        tube_metrics(frame_of(spark, [timeline(1, [("put", -1)])]), "4 seconds"), "puts"
    )
    assert found == {-4: (1,)}


def test_the_number_of_rows_is_limited(spark):
    """Two jobs a year apart make 31 million windows of a second."""
    job_timelines = frame_of(
        spark, [timeline(1, [("put", 0)]), timeline(2, [("put", 365 * 86400)])]
    )
    with pytest.raises(PipelineUsageError, match=r"make 31536001 rows, more than 10000000;"):
        tube_metrics(job_timelines, "1 second")
    assert tube_metrics(job_timelines, "1 day").count() == 366
    assert tube_metrics(job_timelines, "1 second", since=at(1)).count() == 1
    with pytest.raises(PipelineUsageError, match=r"make 366 rows, more than 365;"):
        tube_metrics(job_timelines, "1 day", most_rows=365)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 seconds", 10**7),
        ("1 hour 30 minutes", 5400 * 10**6),
        (" INTERVAL 2 Days ", 2 * 86400 * 10**6),
        ("1 week", 7 * 86400 * 10**6),
        ("1 microsecond", 1),
    ],
)
def test_durations_follow_spark(spark, text, expected):
    from pyspark.sql import functions as f

    assert microseconds_of("window", text) == expected
    found = spark.range(1).select(f.window(f.timestamp_seconds(f.lit(0)), text).alias("w"))
    length = found.select(f.unix_micros("w.end") - f.unix_micros("w.start")).first()[0]
    assert length == expected


@pytest.mark.parametrize(
    "text", ["", "1", "seconds", "0 seconds", "-1 day", "1 month", "1 fortnight", "1 hour,", "1day"]
)
def test_invalid_durations_are_rejected(spark, text):
    with pytest.raises(PipelineUsageError, match="is not a duration"):
        tube_metrics(spark.createDataFrame([], SCHEMA), text)


def test_since_needs_a_zone(spark):
    with pytest.raises(PipelineUsageError, match="has no time zone"):
        tube_metrics(spark.createDataFrame([], SCHEMA), since=datetime(2026, 1, 1))
