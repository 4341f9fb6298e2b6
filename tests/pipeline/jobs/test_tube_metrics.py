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
from pipeline.jobs.truth import Truth
from pipeline.workloads import events

from beanstalkd_py import pipeline
from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.jobs import timelines as timelines_job
from beanstalkd_py.pipeline.jobs.durations import microseconds_of
from beanstalkd_py.pipeline.jobs.timeline_rows import END_EVENTS
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
    "expires": "expire",
    "dead_letters": "dead-letter",
    "discards": "discard",
    "moves": "move",
}
STATES = ("ready", "reserved", "delayed", "buried", "ready_or_reserved", "unknown")
EVER = "36500 days"
MS_20 = "20 milliseconds"

Row = dict[str, Any]


# --- the plain computation ---------------------------------------------------------------------


def state_after(event: str, delay: int | None) -> str:
    if event in ("put", "release"):
        return "delayed" if delay else "ready"
    after = {"reserve": "reserved", "touch": "reserved", "bury": "buried"}
    return "deleted" if event in END_EVENTS else after.get(event, "ready")


def percentile(times: list[float], percent: int) -> float | None:
    """Nearest-rank percentile."""
    times = sorted(times)
    return times[ceil(Fraction(percent, 100) * len(times)) - 1] if times else None


def plain(job_timelines: list[Row], length: int) -> dict[tuple[str | None, int], Row]:
    """Compute the windows with one list of events for each tube."""
    happened: dict[str | None, dict[int, list[tuple[Row, Row]]]] = defaultdict(dict)
    for timeline in job_timelines:
        for event in (*timeline["events"], *timeline["states"]):
            at = micros(event["at"])
            windows = happened[timeline["tube"]]
            windows.setdefault(at - at % length, []).append((timeline, event))
    found: dict[tuple[str | None, int], Row] = {}
    for tube, by_window in happened.items():
        there: dict[int, str] = {}
        for start in range(min(by_window), max(by_window) + 1, length):
            inside = by_window.get(start, [])
            there |= {timeline["id"]: span["state"] for timeline, span in inside if "state" in span}
            found[tube, start] = row_of(
                [(timeline, event) for timeline, event in inside if "event" in event],
                job_timelines,
                tube,
                start,
                length,
                Counter(there.values()),
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
        "depth": states.total() - states["unknown"] - states["deleted"],
        **{state: states[state] for state in STATES},
    }
    of_tube = [timeline for timeline in job_timelines if timeline["tube"] == tube] if inside else []
    for name, kinds in (("wait", ("reserve",)), ("finish", END_EVENTS)):
        first = [
            (timeline, next(e["at"] for e in timeline["events"] if e["event"] in kinds))
            for timeline in of_tube
            if any(event["event"] in kinds for event in timeline["events"])
        ]
        all_times = [
            timeline[f"{name}_s"] for timeline, at in first if start <= micros(at) < start + length
        ]
        times = [time for time in all_times if time is not None]
        row[f"{name}_unknown"] = len(all_times) - len(times)
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
            timeline |= {"body_size": line["body_bytes"], "complete": True}
            timeline |= {"events": [], "states": []}
        event = {"event": line["event"], "at": at, "kind": "exact", "until": None}
        timeline["events"].append({**event, "priority": line["pri"], "delay": line["delay"]})
        timeline["state"] = state_after(line["event"], line["delay"])
        timeline["states"].append({"at": at, "state": timeline["state"]})
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
        for event in (*timeline["events"], *timeline["states"]):
            event["at"] = utc(event["at"])
    same(rows_of(tube_metrics(job_timelines, MS_20)), plain(whole, length), length)
    assert (name == "removed") == any(timeline["tube"] is None for timeline in whole)


@pytest.mark.parametrize("name", ["ours", "history", "c"])
def test_metrics_of_a_binlog_match_the_log(spark, monkeypatch, name):
    """Only for events that a server writes, in one window."""
    job_timelines = of_log(made(name), monkeypatch)
    length = microseconds_of("window", EVER)
    expected = plain(job_timelines, length)
    found = rows_of(tube_metrics(of_binlog(spark, made(name)), EVER))
    written = ("puts", "buries", "kicks", "deletes", "truncates", "put_bytes")
    if name == "history":
        written = (*COUNTED, "put_bytes", "depth", *STATES)
    assert found.keys() == expected.keys()
    for key, row in found.items():
        assert {each: row[each] for each in written} == {
            each: expected[key][each] for each in written
        }, key
        assert row["depth"] <= expected[key]["depth"] <= row["depth"] + row["unknown"]


@pytest.mark.parametrize("name", ["ours", "history", "c"])
def test_depth_is_within_bounds_by_the_log(spark, monkeypatch, name):
    """At the ends of windows, in which some events of the log may have happened."""
    log_reader(monkeypatch)
    length = 20_000
    truths = truths_of(made(name))
    seen: Counter[str] = Counter()
    for (tube, start), row in rows_of(tube_metrics(of_binlog(spark, made(name)), MS_20)).items():
        possible = [truth.possible(start + length - 1) for truth in truths[tube]]
        either = row["ready_or_reserved"]
        for state in ("ready", "reserved", "delayed", "buried"):
            least = sum(each == {state} for each in possible)
            most = sum(state in each for each in possible)
            above = row["unknown"] + (either if state in ("ready", "reserved") else 0)
            assert row[state] <= most and least <= row[state] + above, (tube, start, state)
        gone = [each & {"absent", "deleted"} for each in possible]
        least = sum(not each for each in gone)
        most = sum(bool(each - {"absent", "deleted"}) for each in possible)
        assert row["depth"] <= most and least <= row["depth"] + row["unknown"], (tube, start)
        seen.update({each: row[each] for each in STATES})
    assert seen["buried"] > 0 and seen["delayed"] > 0
    assert (seen["ready_or_reserved"] > 0) == (name != "history")
    assert (seen["unknown"] > 0) == (name != "history")
    if name == "history":
        assert seen["reserved"] > 0


def truths_of(run: Made) -> dict[str, list[Truth]]:
    """Return the jobs of each tube by the log."""
    from workloadlib.event_log import read_log

    jobs: dict[int, list[Row]] = defaultdict(list)
    for line in read_log(run.log):
        if line["event"] not in ("begin", "end"):
            jobs[line["id"]].append(line)
    found: dict[str, list[Truth]] = defaultdict(list)
    for of_job in jobs.values():
        found[of_job[0]["tube"]].append(Truth(events(of_job)))
    return found


# --- incomplete timelines ------------------------------------------------------------------------


def timeline(number: int, happened: list[tuple[str, int]], **more: Any) -> Row:
    """Make a timeline with events at seconds."""
    row = dict.fromkeys(timelines_row(), None)
    row |= {"host": "h", "id": number, "tube": "t", "body_size": 10, "complete": True}
    row["states"] = [{"at": at(second), "state": state_after(e, 0)} for e, second in happened]
    row |= {"state": row["states"][-1]["state"], "put_at": at(happened[0][1])}
    row["events"] = [
        {
            "event": event,
            "at": at(second),
            "kind": "exact",
            "until": None,
            "priority": 0,
            "delay": 0,
        }
        for event, second in happened
    ]
    return row | more


def at(second: int) -> datetime:
    return EPOCH + timedelta(seconds=second)


def columns_of(frame: Any, *names: str) -> dict[int, tuple[Any, ...]]:
    return {
        key[1] // 10**6: tuple(row[name] for name in names) for key, row in rows_of(frame).items()
    }


def test_jobs_in_an_unknown_state_have_series_of_their_own(spark):
    """A reserve is known to the second, and a delete that was at 12 to 14."""
    bounded = timeline(1, [("put", 10), ("reserve", 11), ("delete", 12)])
    spans = [(10, "ready"), (11, "ready_or_reserved"), (12, "unknown"), (14, "deleted")]
    bounded["states"] = [{"at": at(second), "state": state} for second, state in spans]
    known = timeline(2, [("put", 10), ("reserve", 12), ("delete", 13)], wait_s=2.0, finish_s=3.0)
    found = columns_of(
        tube_metrics(frame_of(spark, [bounded, known]), "1 second"),
        *("depth", "ready", "reserved", "ready_or_reserved", "unknown"),
        *("wait_max_s", "wait_unknown", "finish_max_s", "finish_unknown"),
    )
    assert found == {
        10: (2, 2, 0, 0, 0, None, 0, None, 0),
        11: (2, 1, 0, 1, 0, None, 1, None, 0),
        12: (1, 0, 1, 0, 1, 2.0, 0, None, 1),
        13: (0, 0, 0, 0, 1, None, 0, 3.0, 0),
        14: (0, 0, 0, 0, 0, None, 0, None, 0),
    }


def test_each_end_has_a_column(spark):
    ends = ("delete", "truncate", "move", "expire", "dead-letter", "discard")
    columns = ("deletes", "truncates", "moves", "expires", "dead_letters", "discards")
    jobs_by_end = [
        timeline(10 * number + i, [("put", 10), (end, 20 + number)], finish_s=10.0 + number)
        for number, end in enumerate(ends)
        for i in range(number + 1)
    ]
    found = columns_of(
        tube_metrics(frame_of(spark, jobs_by_end), "1 second"), *columns, "finish_max_s"
    )
    for number in range(len(ends)):
        counts = [number + 1 if other == number else 0 for other in range(len(ends))]
        assert found[20 + number] == (*counts, 10.0 + number)


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
