"""Timelines decoded from entries, against the log of the workload."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pipeline import workloads
from pipeline.jobs.plain_timelines import (
    batches,
    entries_of,
    in_order,
    nanoseconds,
    plain_timelines,
)
from pipeline.workloads import Event, Run

from beanstalkd_py.pipeline.jobs.timeline_rows import COUNTERS, EVENTS, timelines_of_entries

pytestmark = pytest.mark.timeout(300)

RUNS = {
    "history": ("--jobs=1500", "--binlog-size=60K", "--history=HISTORY", "--truncate=1"),
    "workers": ("--jobs=1500", "--binlog-size=60K", "--workers=2", "--truncate=1"),
    "c": ("--jobs=1500", "--binlog-size=60K", "--server=c"),
    "gone": ("--jobs=1500", "--binlog-size=60K", "--no-keep-files"),
}
WITHOUT_ENTRY = {"reserve", "timeout", "return", "due", "touch"}
AFTER = {"reserve": "reserved", "touch": "reserved", "bury": "buried"}
AFTER |= {"delete": "deleted", "truncate": "deleted"}
MICROSECOND = 1000

Timeline = dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    return workloads.made(tmp_path_factory.mktemp("made"), RUNS)


@pytest.fixture(scope="module")
def found(made: dict[str, Run]) -> dict[str, dict[int, Timeline]]:
    return {
        name: {
            timeline["id"]: timeline
            for timeline in plain_timelines(entries_of(run.binlog, host="ann"))
        }
        for name, run in made.items()
    }


def kinds(timeline: Timeline) -> list[str]:
    return [event["event"] for event in timeline["events"]]


def visible_events(
    truth: list[Event], timeline: Timeline, without: frozenset[str] = frozenset()
) -> list[Event]:
    """Return the events of the log that a timeline must have; fail if the timeline differs."""
    expected = [event for event in truth if event.kind not in without]
    actual = [kind for kind in kinds(timeline) if kind not in without]
    while [event.kind for event in expected] != actual:
        assert expected[-1].kind in WITHOUT_ENTRY, (
            timeline["id"],
            [e.kind for e in truth],
            kinds(timeline),
        )
        expected.pop()
    return expected


def is_within(event: Event, recorded_event: dict[str, Any]) -> bool:
    """Return whether an event of a timeline matches one of the log."""
    at, until = nanoseconds(recorded_event["at"]), nanoseconds(recorded_event["until"])
    if recorded_event["kind"] != "bounded":
        return until == -1 and event.sent_ns - MICROSECOND < at <= event.at_ns
    return at <= event.at_ns and (until == -1 or until + MICROSECOND > event.sent_ns)


@pytest.mark.slow
def test_with_a_history_every_event_has_its_exact_time(made, found):
    jobs = workloads.lines(made["history"])
    assert found["history"].keys() == jobs.keys()
    seen: Counter[str] = Counter()
    for job, of_job in jobs.items():
        timeline = found["history"][job]
        truth = visible_events(workloads.events(of_job), timeline)
        for event, actual in zip(truth, timeline["events"], strict=True):
            assert is_within(event, actual), (job, event, actual)
            is_derived = event.kind == "due" or actual["kind"] == "derived"
            assert actual["kind"] == ("derived" if is_derived else "exact")
            seen[event.kind, actual["kind"]] += 1
            if event.kind in ("put", "release"):
                assert (actual["priority"], actual["delay"]) == (event.priority, event.delay)
            if event.kind == "bury":
                assert actual["priority"] == event.priority
    assert {kind for kind, _ in seen} == set(EVENTS)
    # A copy of a reserved job may be the first entry that records its reserve.
    assert seen["reserve", "derived"] < seen["reserve", "exact"] / 50


@pytest.mark.parametrize("name", ["workers", "c"])
def test_without_a_history_events_have_bounds(made, found, name):
    """Reserves and returns without an entry are only counted."""
    jobs = workloads.lines(made[name])
    assert found[name].keys() == jobs.keys()
    seen: Counter[tuple[str, str]] = Counter()
    for job, of_job in jobs.items():
        timeline, whole = found[name][job], workloads.events(of_job)
        truth = visible_events(
            whole, timeline, frozenset({"touch", "return", "timeout", "release"})
        )
        for kind in ("timeout", "release", "return"):
            truth += [event for event in whole if event.kind == kind]
        for kind in EVENTS:
            expected = [event for event in truth if event.kind == kind]
            actual = [event for event in timeline["events"] if event["event"] == kind]
            if kind == "touch":
                continue
            # C beanstalkd writes no release without a delay.
            may_lack = kind in WITHOUT_ENTRY or (
                name == "c" and kind == "release" and not timeline["end"]
            )
            assert len(actual) == len(expected) or (len(actual) < len(expected) and may_lack)
            for event, one in zip(expected, actual, strict=False):
                others = [each for each in whole if each.kind in ("touch", kind)]
                alike = others if one["kind"] == "derived" or kind == "return" else [event]
                assert any(is_within(each, one) for each in alike), (job, event, one)
                seen[kind, one["kind"]] += 1
    if name == "workers":
        assert all(seen[kind, "exact"] > 0 for kind in ("put", "release", "bury", "kick"))
        assert seen["delete", "exact"] > 0 and seen["truncate", "exact"] > 0
        assert seen["reserve", "bounded"] > 0
    else:
        assert not any(kind == "exact" for _, kind in seen)
        assert seen["put", "derived"] and seen["delete", "bounded"] and seen["reserve", "derived"]


@pytest.mark.parametrize("name", ["history", "workers", "c"])
def test_a_row_matches_its_events_and_the_log(made, found, name):
    jobs = workloads.lines(made[name])
    for job, of_job in jobs.items():
        timeline, first = found[name][job], of_job[0]
        assert timeline["complete"] and timeline["host"] == "ann"
        assert (timeline["tube"], timeline["ttr"]) == (first["tube"], first["ttr"])
        assert (timeline["body_size"], timeline["delay"]) == (first["body_bytes"], first["delay"])
        end = of_job[-1]["event"]
        ended = {"delete": "deleted", "truncate": "truncated"}.get(end)
        assert timeline["end"] == ended and (timeline["state"] == "deleted") == (ended is not None)
        assert summarize(timeline) == {name: timeline[name] for name in summarize(timeline)}
        if ended:
            counts = Counter(line["event"] for line in of_job)
            events = ("reserve", "timeout", "release", "bury", "kick")
            assert [timeline[name] for name in COUNTERS] == [counts[kind] for kind in events]
            assert timeline["priority"] == of_job[-1]["pri"]


def summarize(timeline: Timeline) -> Timeline:
    """Compute the summary columns from events."""
    events = timeline["events"]
    at = [nanoseconds(event["at"]) // MICROSECOND for event in events]
    spent: Counter[str] = Counter()
    state, since = "ready", at[0]
    for event, now in zip(events, at, strict=True):
        spent[state] += max(0, now - since)
        since = max(since, now)
        state = "delayed" if event["delay"] else AFTER.get(event["event"], "ready")
    reserves = [
        None if event["kind"] == "bounded" else now
        for event, now in zip(events, at, strict=True)
        if event["event"] == "reserve"
    ]
    ends = [now for event, now in zip(events, at, strict=True) if event["event"] in EVENTS[-2:]]
    order = ("exact", "derived", "bounded")
    return {
        "put_at": events[0]["at"],
        "last_at": events[-1]["at"],
        "wait_s": (reserves[0] - at[0]) / 1e6 if reserves and reserves[0] else None,
        "finish_s": (ends[0] - at[0]) / 1e6 if ends else None,
        **{f"{name}_s": spent[name] / 1e6 for name in ("ready", "reserved", "delayed", "buried")},
        "touches": kinds(timeline).count("touch"),
        "time_kind": max((event["kind"] for event in events), key=order.index),
    }


@pytest.mark.parametrize("name", ["history", "workers", "c"])
def test_copies_are_not_puts(made, found, name):
    entries = entries_of(made[name].binlog)
    fulls = Counter((row["shard"], row["id"]) for row in entries if row["kind"] == "full")
    assert sum(count - 1 for count in fulls.values()) > 20
    assert all(kinds(timeline).count("put") == 1 for timeline in found[name].values())


def test_jobs_have_a_row_after_the_oldest_files_were_removed(made, found):
    """Their earlier events are counted, with bounded times."""
    jobs = workloads.lines(made["gone"])
    there = {job: of for job, of in jobs.items() if of[-1]["event"] not in EVENTS[-2:]}
    assert len(there) > 100
    incomplete = 0
    for job, of_job in there.items():
        timeline = found["gone"][job]
        assert (timeline["tube"], timeline["ttr"]) == (of_job[0]["tube"], of_job[0]["ttr"])
        truth = visible_events(
            workloads.events(of_job), timeline, frozenset({"touch", "return", "due"})
        )
        actual = Counter(kinds(timeline))
        expected = Counter(event.kind for event in truth)
        for kind in ("put", "reserve", "timeout", "release", "bury", "kick"):
            assert actual[kind] == expected[kind], (job, kind)
        incomplete += not timeline["complete"]
    assert incomplete > 0


@pytest.mark.parametrize("name", ["history", "c"])
def test_any_division_into_batches_gives_the_same_timelines(made, name):
    entries = in_order(entries_of(made[name].binlog))[:600]
    whole = plain_timelines(entries)
    rng = random.Random(name)
    for most in (1, 3, 50):
        sizes: list[int] = []
        while sum(sizes) < len(entries):
            sizes.append(rng.randint(0, most))
        pieces = [batch.to_pylist() for batch in timelines_of_entries(batches(entries, sizes))]
        assert [timeline for piece in pieces for timeline in piece] == whole


def test_jobs_with_the_same_id_have_their_own_rows(made):
    """Two servers with the same host name."""
    both = entries_of(made["history"].binlog, made["c"].binlog, host="ann")
    apart = [
        plain_timelines(entries_of(made[name].binlog, host="ann")) for name in ("history", "c")
    ]
    assert sorted(plain_timelines(both), key=repr) == sorted(apart[0] + apart[1], key=repr)


def test_no_entries_give_no_rows(tmp_path: Path):
    assert plain_timelines(entries_of(tmp_path)) == []
