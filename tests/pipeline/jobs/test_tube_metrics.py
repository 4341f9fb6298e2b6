"""Tube metrics against a plain walk through the log of what was sent to the server."""

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
    """As the protocol has it."""
    if event in ("put", "release"):
        return "delayed" if delay else "ready"
    after = {"reserve": "reserved", "touch": "reserved", "bury": "buried"}
    return None if event in ("delete", "truncate") else after.get(event, "ready")


def percentile(times: list[float], percent: int) -> float | None:
    """The smallest that so many of a hundred do not exceed."""
    times = sorted(times)
    return times[ceil(Fraction(percent, 100) * len(times)) - 1] if times else None


def plain(lives: list[Row], length: int) -> dict[tuple[str | None, int], Row]:
    """Window by window, with one queue of events for each tube."""
    happened: dict[str | None, list[tuple[int, Row, Row]]] = defaultdict(list)
    for life in lives:
        for event in life["events"]:
            happened[life["tube"]].append((micros(event["at"]), life, event))
    found: dict[tuple[str | None, int], Row] = {}
    for tube, events in happened.items():
        by_window: dict[int, list[tuple[Row, Row]]] = defaultdict(list)
        for at, life, event in events:
            by_window[at - at % length].append((life, event))
        there: dict[int, str] = {}
        for start in range(min(by_window), max(by_window) + 1, length):
            inside = by_window.get(start, [])
            for life, event in inside:
                state = state_after(event["event"], event["delay"])
                if state is None:
                    del there[life["id"]]
                else:
                    there[life["id"]] = state
            found[tube, start] = row_of(inside, lives, tube, start, length, Counter(there.values()))
    return found


def row_of(
    inside: list[tuple[Row, Row]],
    lives: list[Row],
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
        "put_bytes": sum(life["body_size"] for life, event in inside if event["event"] == "put"),
        "puts_per_s": counts["puts"] / seconds,
        "deletes_per_s": counts["deletes"] / seconds,
        "depth": states.total(),
        **{state: states[state] for state in STATES},
    }
    of_tube = [life for life in lives if life["tube"] == tube] if inside else []
    for name, at, value in (
        ("wait", "first_reserve_at", "wait_s"),
        ("finish", "end_at", "finish_s"),
    ):
        times = [
            life[value]
            for life in of_tube
            if life[value] is not None and start <= micros(life[at]) < start + length
        ]
        for percent in (50, 90, 99):
            row[f"{name}_p{percent}_s"] = percentile(times, percent)
        row[f"{name}_max_s"] = max(times, default=None)
    return row


def micros(at: datetime) -> int:
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (at - EPOCH) // timedelta(microseconds=1)


def rows_of(frame: Any) -> dict[tuple[str | None, int], Row]:
    """What Spark says, in the same form."""
    found = {}
    for each in frame.collect():
        row = each.asDict()
        key = row.pop("tube"), micros(utc(row.pop("window_start")))
        assert key not in found
        found[key] = row
    return found


def utc(naive: datetime) -> datetime:
    """Spark gives local times."""
    return datetime.fromtimestamp(naive.timestamp(), UTC)


def same(found: dict[Any, Row], expected: dict[Any, Row], length: int) -> None:
    assert found.keys() == expected.keys()
    for key, row in found.items():
        assert row.pop("host") == "h"
        end = micros(utc(row.pop("window_end")))
        assert end == key[1] + length
        assert row == expected[key], key


# --- lives -------------------------------------------------------------------------------------


def of_log(run: Made, monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """Lives as the log has them: as rows of timelines, in which every time is exact."""
    log_reader(monkeypatch)
    from workloadlib.event_log import read_log

    lives: dict[int, Row] = {}
    for line in read_log(run.log):
        if line["event"] in ("begin", "end"):
            continue
        at = EPOCH + timedelta(microseconds=line["at_ns"] // 1000)
        life = lives.get(line["id"])
        if life is None:
            life = lives[line["id"]] = dict.fromkeys(timelines_row(), None)
            life |= {"host": "h", "id": line["id"], "tube": line["tube"], "put_at": at}
            life |= {"body_size": line["body_bytes"], "complete": True, "events": []}
        event = {"event": line["event"], "at": at, "kind": "exact", "until": None}
        life["events"].append({**event, "priority": line["pri"], "delay": line["delay"]})
        life["state"] = state_after(line["event"], line["delay"]) or "deleted"
        life["last_at"] = at
        waited = (at - life["put_at"]) / timedelta(seconds=1)
        if line["event"] == "reserve" and life["first_reserve_at"] is None:
            life |= {"first_reserve_at": at, "wait_s": waited}
        if life["state"] == "deleted":
            life |= {"end_at": at, "finish_s": waited}
    return list(lives.values())


def timelines_row() -> list[str]:

    return SCHEMA.names


def frame_of(spark: Any, lives: list[Row]) -> Any:
    return spark.createDataFrame([tuple(life.values()) for life in lives], SCHEMA)


@pytest.mark.parametrize("window", ["10 milliseconds", "100 milliseconds", "7 seconds"])
def test_every_window_of_every_tube_is_as_the_log_has_it(spark, monkeypatch, window):
    lives = of_log(made("history"), monkeypatch)
    length = microseconds_of("window", window)
    expected = plain(lives, length)
    metrics = tube_metrics(frame_of(spark, lives), window)
    same(rows_of(metrics), expected, length)
    assert len({tube for tube, _ in expected}) == 5
    assert sum(row["truncates"] for row in expected.values()) > 0
    if window == "10 milliseconds":
        assert any(not any(row[name] for name in COUNTED) for row in expected.values())


def test_it_does_not_depend_on_how_lives_are_divided(spark, monkeypatch):
    lives = of_log(made("ours"), monkeypatch)
    one = rows_of(tube_metrics(frame_of(spark, lives).coalesce(1), "50 milliseconds"))
    random.Random(5).shuffle(lives)
    other = tube_metrics(frame_of(spark, lives).repartition(7), "50 milliseconds")
    assert one == rows_of(other)


# --- from binlogs ------------------------------------------------------------------------------


def of_binlog(spark: Any, run: Made) -> Any:
    columns = list(timelines_job.COLUMNS)
    return timelines(pipeline.read_binlog(spark, str(run.binlog), columns=columns, host="h"))


@pytest.mark.parametrize("name", ["ours", "history", "c", "removed"])
def test_metrics_of_a_binlog_are_those_of_its_lives(spark, name):
    """Also where times are derived or bounded, and where puts are in files that are gone."""
    lives = of_binlog(spark, made(name)).select("id", *COLUMNS)
    length = 20_000
    whole = [row.asDict(recursive=True) for row in lives.collect()]
    for life in whole:
        for key in ("first_reserve_at", "end_at"):
            life[key] = life[key] and utc(life[key])
        for event in life["events"]:
            event["at"] = utc(event["at"])
    same(rows_of(tube_metrics(lives, "20 milliseconds")), plain(whole, length), length)
    assert (name == "removed") == any(life["tube"] is None for life in whole)


@pytest.mark.parametrize("name", ["ours", "history", "c"])
def test_a_binlog_says_what_was_sent(spark, monkeypatch, name):
    """All in one window. What no server writes is not looked at: see the columns left out."""
    lives = of_log(made(name), monkeypatch)
    length = microseconds_of("window", EVER)
    expected = plain(lives, length)
    found = rows_of(tube_metrics(of_binlog(spark, made(name)), EVER))
    written = ("puts", "buries", "kicks", "deletes", "truncates", "put_bytes", "depth", "buried")
    if name == "history":
        written = (*COUNTED, "put_bytes", "depth", *STATES)
    assert found.keys() == expected.keys()
    for key, row in found.items():
        assert {each: row[each] for each in written} == {
            each: expected[key][each] for each in written
        }, key


# --- what is not all there ---------------------------------------------------------------------


def life(number: int, events: list[tuple[str, int]], **more: Any) -> Row:
    """A life with events at seconds."""
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
    """By second."""
    return {
        key[1] // 10**6: tuple(row[name] for name in names) for key, row in rows_of(frame).items()
    }


def test_a_job_whose_put_is_gone_was_there_before(spark):
    """In the state that its first event tells; it is no put."""
    lives = [
        life(1, [("put", 10), ("delete", 13)]),
        life(2, [("bury", 11), ("delete", 12)], tube="t", complete=False),
        life(3, [], state="delayed", complete=False),
    ]
    found = columns_of(
        tube_metrics(frame_of(spark, lives), "1 second"),
        *("puts", "deletes", "depth", "ready", "reserved", "buried", "delayed"),
    )
    assert found == {
        10: (1, 0, 3, 1, 1, 0, 1),
        11: (0, 0, 3, 1, 0, 1, 1),
        12: (0, 1, 2, 1, 0, 0, 1),
        13: (0, 1, 1, 0, 0, 0, 1),
    }


def test_events_before_since_count_for_the_depth_alone(spark):
    lives = [life(1, [("put", 10)]), life(2, [("put", 1000), ("delete", 1002)])]
    frame = frame_of(spark, lives)
    found = columns_of(tube_metrics(frame, "1 second", since=at(900)), "puts", "depth")
    assert found == {1000: (1, 2), 1001: (0, 2), 1002: (0, 1)}


def test_jobs_without_a_tube_are_of_none(spark):
    lives = [life(1, [("delete", 5)], tube=None), life(2, [("put", 5)])]
    found = rows_of(tube_metrics(frame_of(spark, lives), "1 second"))
    assert {key: row["deletes"] for key, row in found.items()} == {
        (None, 5 * 10**6): 1,
        ("t", 5 * 10**6): 0,
    }


def test_without_lives_there_is_nothing(spark):
    assert rows_of(tube_metrics(spark.createDataFrame([], SCHEMA))) == {}


def test_windows_before_1970_begin_at_multiples_too(spark):
    found = columns_of(tube_metrics(frame_of(spark, [life(1, [("put", -1)])]), "4 seconds"), "puts")
    assert found == {-4: (1,)}


def test_windows_are_not_made_without_end(spark):
    """A tube with two jobs a year apart has 31 million windows of a second."""
    lives = frame_of(spark, [life(1, [("put", 0)]), life(2, [("put", 365 * 86400)])])
    with pytest.raises(PipelineUsageError, match=r"make 31536001 rows, more than 10000000;"):
        tube_metrics(lives, "1 second")
    assert tube_metrics(lives, "1 day").count() == 366
    assert tube_metrics(lives, "1 second", since=at(1)).count() == 1
    with pytest.raises(PipelineUsageError, match=r"make 366 rows, more than 365;"):
        tube_metrics(lives, "1 day", most_rows=365)


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
def test_lengths_are_as_sparks(spark, text, expected):
    from pyspark.sql import functions as f

    assert microseconds_of("window", text) == expected
    found = spark.range(1).select(f.window(f.timestamp_seconds(f.lit(0)), text).alias("w"))
    length = found.select(f.unix_micros("w.end") - f.unix_micros("w.start")).first()[0]
    assert length == expected


@pytest.mark.parametrize(
    "text", ["", "1", "seconds", "0 seconds", "-1 day", "1 month", "1 fortnight", "1 hour,", "1day"]
)
def test_what_is_no_length_is_refused(spark, text):
    with pytest.raises(PipelineUsageError, match="is not a duration"):
        tube_metrics(spark.createDataFrame([], SCHEMA), text)


def test_since_needs_a_zone(spark):
    with pytest.raises(PipelineUsageError, match="has no time zone"):
        tube_metrics(spark.createDataFrame([], SCHEMA), since=datetime(2026, 1, 1))
