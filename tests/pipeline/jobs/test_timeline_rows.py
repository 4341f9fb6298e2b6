"""Lives of jobs out of entries and messages, against the log of what was done to a real server."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pipeline import workloads
from pipeline.jobs.plain_timelines import batches, entries_of, in_order, lives, nanoseconds
from pipeline.workloads import Event, Run

from beanstalkd_py.pipeline.jobs.timeline_rows import COUNTERS, EVENTS, timelines_of_entries

pytestmark = pytest.mark.timeout(300)

RUNS = {
    "history": ("--jobs=1500", "--binlog-size=60K", "--history=HISTORY", "--truncate=1"),
    "workers": ("--jobs=1500", "--binlog-size=60K", "--workers=2", "--truncate=1"),
    "c": ("--jobs=1500", "--binlog-size=60K", "--server=c"),
    "gone": ("--jobs=1500", "--binlog-size=60K", "--no-keep-files"),
}
UNTOLD = {"reserve", "timeout", "return", "due", "touch"}
"""Events that no entry need tell of if they are the last."""
AFTER = {"reserve": "reserved", "touch": "reserved", "bury": "buried"}
AFTER |= {"delete": "deleted", "truncate": "deleted"}
MICROSECOND = 1000

Life = dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    return workloads.made(tmp_path_factory.mktemp("made"), RUNS)


@pytest.fixture(scope="module")
def found(made: dict[str, Run]) -> dict[str, dict[int, Life]]:
    """The lives of each run, by id."""
    return {
        name: {life["id"]: life for life in lives(entries_of(run.binlog, host="ann"))}
        for name, run in made.items()
    }


def kinds(life: Life) -> list[str]:
    return [event["event"] for event in life["events"]]


def told(truth: list[Event], life: Life, without: frozenset[str] = frozenset()) -> list[Event]:
    """What of a log's events a life tells; the last ones need no entry. Fails if it differs."""
    expected = [event for event in truth if event.kind not in without]
    said = [kind for kind in kinds(life) if kind not in without]
    while [event.kind for event in expected] != said:
        assert expected[-1].kind in UNTOLD, (life["id"], [e.kind for e in truth], kinds(life))
        expected.pop()
    return expected


def is_within(event: Event, told_event: dict[str, Any]) -> bool:
    """Whether a life's event can be that of the log."""
    at, until = nanoseconds(told_event["at"]), nanoseconds(told_event["until"])
    if told_event["kind"] != "bounded":
        return until == -1 and event.sent_ns - MICROSECOND < at <= event.at_ns
    return at <= event.at_ns and (until == -1 or until + MICROSECOND > event.sent_ns)


@pytest.mark.slow
def test_with_a_history_every_event_has_its_exact_time(made, found):
    jobs = workloads.lines(made["history"])
    assert found["history"].keys() == jobs.keys()
    seen: Counter[str] = Counter()
    for job, of_job in jobs.items():
        life = found["history"][job]
        truth = told(workloads.events(of_job), life)
        for event, said in zip(truth, life["events"], strict=True):
            assert is_within(event, said), (job, event, said)
            is_derived = event.kind == "due" or said["kind"] == "derived"
            assert said["kind"] == ("derived" if is_derived else "exact")
            seen[event.kind, said["kind"]] += 1
            if event.kind in ("put", "release"):
                assert (said["priority"], said["delay"]) == (event.priority, event.delay)
            if event.kind == "bury":
                assert said["priority"] == event.priority
    assert {kind for kind, _ in seen} == set(EVENTS)
    # A copy of a reserved job may be the first that tells of its reserve.
    assert seen["reserve", "derived"] < seen["reserve", "exact"] / 50


@pytest.mark.parametrize("name", ["workers", "c"])
def test_without_a_history_events_have_bounds(made, found, name):
    """Touches and returns are not counted, so nothing tells of them for sure.

    Of what ends a reserve and has no entry only the number is known, not the order.
    """
    jobs = workloads.lines(made[name])
    assert found[name].keys() == jobs.keys()
    seen: Counter[tuple[str, str]] = Counter()
    for job, of_job in jobs.items():
        life, whole = found[name][job], workloads.events(of_job)
        truth = told(whole, life, frozenset({"touch", "return", "timeout", "release"}))
        for kind in ("timeout", "release", "return"):
            truth += [event for event in whole if event.kind == kind]
        for kind in EVENTS:
            expected = [event for event in truth if event.kind == kind]
            said = [event for event in life["events"] if event["event"] == kind]
            if kind == "touch":
                continue
            # C beanstalkd writes no release without a delay.
            may_lack = kind in UNTOLD or (name == "c" and kind == "release" and not life["end"])
            assert len(said) == len(expected) or (len(said) < len(expected) and may_lack)
            for event, one in zip(expected, said, strict=False):
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
def test_a_row_sums_up_its_events_and_says_what_the_log_does(made, found, name):
    jobs = workloads.lines(made[name])
    for job, of_job in jobs.items():
        life, first = found[name][job], of_job[0]
        assert life["complete"] and life["host"] == "ann"
        assert (life["tube"], life["ttr"]) == (first["tube"], first["ttr"])
        assert (life["body_size"], life["delay"]) == (first["body_bytes"], first["delay"])
        end = of_job[-1]["event"]
        ended = {"delete": "deleted", "truncate": "truncated"}.get(end)
        assert life["end"] == ended and (life["state"] == "deleted") == (ended is not None)
        assert summed_up(life) == {name: life[name] for name in summed_up(life)}
        if ended:
            counts = Counter(line["event"] for line in of_job)
            events = ("reserve", "timeout", "release", "bury", "kick")
            assert [life[name] for name in COUNTERS] == [counts[kind] for kind in events]
            assert life["priority"] == of_job[-1]["pri"]


def summed_up(life: Life) -> Life:
    """The columns that events amount to, by plain Python."""
    events = life["events"]
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
        "touches": kinds(life).count("touch"),
        "time_kind": max((event["kind"] for event in events), key=order.index),
    }


@pytest.mark.parametrize("name", ["history", "workers", "c"])
def test_copies_are_no_puts(made, found, name):
    """Compaction has written many jobs more than once, and each life has one put."""
    entries = entries_of(made[name].binlog)
    fulls = Counter((row["shard"], row["id"]) for row in entries if row["kind"] == "full")
    assert sum(count - 1 for count in fulls.values()) > 20
    assert all(kinds(life).count("put") == 1 for life in found[name].values())


def test_where_the_oldest_files_are_gone_jobs_that_are_there_have_their_row(made, found):
    """What a job has been through is counted then, and its time is bounded."""
    jobs = workloads.lines(made["gone"])
    there = {job: of for job, of in jobs.items() if of[-1]["event"] not in EVENTS[-2:]}
    assert len(there) > 100
    incomplete = 0
    for job, of_job in there.items():
        life = found["gone"][job]
        assert (life["tube"], life["ttr"]) == (of_job[0]["tube"], of_job[0]["ttr"])
        truth = told(workloads.events(of_job), life, frozenset({"touch", "return", "due"}))
        said = Counter(kinds(life))
        expected = Counter(event.kind for event in truth)
        for kind in ("put", "reserve", "timeout", "release", "bury", "kick"):
            assert said[kind] == expected[kind], (job, kind)
        incomplete += not life["complete"]
    assert incomplete > 0


@pytest.mark.parametrize("name", ["history", "c"])
def test_where_batches_end_is_of_no_matter(made, name):
    entries = in_order(entries_of(made[name].binlog))[:600]
    whole = lives(entries)
    rng = random.Random(name)
    for most in (1, 3, 50):
        sizes: list[int] = []
        while sum(sizes) < len(entries):
            sizes.append(rng.randint(0, most))
        pieces = [batch.to_pylist() for batch in timelines_of_entries(batches(entries, sizes))]
        assert [life for piece in pieces for life in piece] == whole


def test_lives_of_one_id_are_told_apart(made):
    """Two servers that are called the same, both with job 1 and so on."""
    both = entries_of(made["history"].binlog, made["c"].binlog, host="ann")
    apart = [lives(entries_of(made[name].binlog, host="ann")) for name in ("history", "c")]
    assert sorted(lives(both), key=repr) == sorted(apart[0] + apart[1], key=repr)


def test_nothing_comes_of_nothing(tmp_path: Path):
    assert lives(entries_of(tmp_path)) == []
