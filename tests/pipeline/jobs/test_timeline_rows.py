"""Timelines decoded from entries, against the log of the workload."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from core.history.test_server_binlogs import messages_of
from core.policies.test_throttles import close, release, time_out
from core.rig import SECOND, Rig
from pipeline import workloads
from pipeline.jobs.plain_timelines import (
    batches,
    entries_of,
    in_order,
    nanoseconds,
    plain_timelines,
)
from pipeline.jobs.truth import ROUND_NS
from pipeline.plain import EPOCH
from pipeline.workloads import Event, Run

from beanstalkd_py.core.tube_policy import DELETE, TubePolicy
from beanstalkd_py.pipeline.jobs.timeline_rows import (
    COUNTERS,
    END_EVENTS,
    ENDS,
    EVENTS,
    MESSAGE_COLUMNS,
    timelines_of_entries,
    timelines_of_messages,
)

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
        return until == -1 and event.sent_ns - ROUND_NS < at <= event.at_ns
    return at <= event.at_ns and (until == -1 or until + ROUND_NS > event.sent_ns)


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
    assert {kind for kind, _ in seen} == set(EVENTS) - set(END_EVENTS[2:])
    # A copy of a reserved job may be the first entry that records its reserve.
    assert seen["reserve", "derived"] < seen["reserve", "exact"] / 50


@pytest.mark.parametrize("name", [pytest.param("workers", marks=pytest.mark.slow), "c"])
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
        assert seen["put", "derived"] and seen["delete", "bounded"] and seen["reserve", "bounded"]


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
    """Compute the summary columns from events, durations only from known times."""
    events = timeline["events"]
    at = [nanoseconds(event["at"]) // MICROSECOND for event in events]
    spent: Counter[str] = Counter()
    state, since = "ready", at[0]
    for event, now in zip(events, at, strict=True):
        spent[state] += max(0, now - since)
        since = max(since, now)
        state = "delayed" if event["delay"] else AFTER.get(event["event"], "ready")
    reserves = [now for event, now in zip(events, at, strict=True) if event["event"] == "reserve"]
    ends = [now for event, now in zip(events, at, strict=True) if event["event"] in END_EVENTS]
    order = ("exact", "derived", "bounded")
    summary = {
        "put_at": events[0]["at"],
        "last_at": events[-1]["at"],
        "touches": kinds(timeline).count("touch"),
        "time_kind": max((event["kind"] for event in events), key=order.index),
    }
    if summary["time_kind"] == "bounded":
        return summary
    wait_s = (reserves[0] - at[0]) / 1e6 if reserves else None
    finish_s = (ends[0] - at[0]) / 1e6 if ends else None
    return {
        **summary,
        **{f"wait{part}_s": wait_s for part in ("", "_min", "_max")},
        **{f"finish{part}_s": finish_s for part in ("", "_min", "_max")},
        **{f"{name}_s": spent[name] / 1e6 for name in ("ready", "reserved", "delayed", "buried")},
        "ready_or_reserved_s": (spent["ready"] + spent["reserved"]) / 1e6,
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
    there = {job: of for job, of in jobs.items() if of[-1]["event"] not in END_EVENTS}
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


def of_text(text: str, ended: int = 0) -> Timeline:
    """Return the timeline of one message."""
    known = dict.fromkeys(MESSAGE_COLUMNS, 1) | {"host": "ann", "shard": None, "tube": "mails"}
    columns = {**known, "state": "deleted", "timeline": text, "ended": ended}
    batch = pa.RecordBatch.from_pylist([columns])
    batch = batch.cast(batch.schema.set(1, pa.field("shard", pa.string())))
    (timeline,) = next(iter(timelines_of_messages([batch]))).to_pylist()
    return timeline


def test_after_omitted_events_the_state_is_unknown():
    text = "put@1000000000;...3;reserve@3000000000;bury@4000000000;delete@6000000000"
    timeline = of_text(text)
    assert [span["state"] for span in timeline["states"]] == [
        *("unknown", "reserved", "buried", "deleted")
    ]
    assert timeline["complete"] and timeline["end"] == "deleted"
    assert (timeline["wait_s"], timeline["wait_min_s"], timeline["wait_max_s"]) == (None, 0, 2)
    assert (timeline["finish_s"], timeline["finish_min_s"], timeline["finish_max_s"]) == (5, 5, 5)
    names = ("ready_s", "reserved_s", "delayed_s", "buried_s", "ready_or_reserved_s")
    assert [timeline[name] for name in names] == [None] * 5


@pytest.mark.parametrize(("ended", "event"), list(enumerate(END_EVENTS)))
def test_how_a_job_ended(ended: int, event: str):
    """In a message the last event is a delete, and TAGS says which; an entry has both in one."""
    entry = {**ENTRY, "offset": 400, "event_time_ns": 50 * NS, "event_time_kind": "exact"}
    entry |= {"state": "deleted", "ended": ENDS[ended], "event_time_until": None}
    (of_entry,) = plain_timelines([PUT, entry])
    of_message = of_text("put@0;delete@50000000000", ended)
    for timeline in (of_entry, of_message):
        assert [each["event"] for each in timeline["events"]] == ["put", event]
        assert (timeline["end"], timeline["state"]) == (ENDS[ended], "deleted")
        assert timeline["finish_s"] == 50


@pytest.mark.parametrize("held_ns", [100_000_000, 3 * SECOND])
def test_a_job_that_a_policy_ends_has_come_back_before(tmp_path: Path, held_ns: int):
    """The last entry records both, and the reserve if it was short."""
    come_back = {"release": release, "timeout": time_out, "return": close}
    with Rig(tmp_path, history=True, sync_interval_ns=-1) as rig:
        rig.core.set_policies([TubePolicy("*", max_reserves=1, then=DELETE)], rig.now)
        client, other = rig.client(), rig.client()
        jobs = {}
        for kind, leave in come_back.items():
            jobs[kind] = client.put(ttr=100 if kind != "timeout" else 1)
            client.ask(b"reserve-job %d\r\n" % jobs[kind])
            rig.advance(held_ns)
            leave(client, jobs[kind])
            client = other if kind == "return" else client
        rig.advance(SECOND)
        messages = {message.properties["KEYS"]: message for message in messages_of(tmp_path)}
    of_entries = {each["id"]: each for each in plain_timelines(entries_of(tmp_path, host="ann"))}
    for kind, job in jobs.items():
        properties = messages[str(job)].properties
        of_message = of_text(properties["timeline"], ENDS.index(properties["TAGS"]))
        assert of_message["events"] == of_entries[job]["events"]
        kinds = [event["event"] for event in of_message["events"]]
        known = kind != "return" or held_ns < SECOND
        assert kinds == ["put", "reserve", *([kind] if known else []), "discard"]
        assert of_message["end"] == of_entries[job]["end"] == "discarded"


def test_an_invalid_text_gives_no_durations():
    for text in ("", "put@x", "reserve@1000;delete@2000"):
        timeline = of_text(text)
        assert not timeline["complete"] and timeline["events"] == timeline["states"] == []
        assert [timeline[f"{name}_s"] for name in ("wait", "finish", "ready")] == [None] * 3


NS = 10**9
ENTRY = {
    "host": "ann",
    "shard": "",
    "tube": "mails",
    "id": 7,
    "file_number": 1,
    "kind": "short",
    **dict.fromkeys(("delay", "priority", "body_size", "created_at_ns", *COUNTERS), 0),
    **dict.fromkeys(("reserved_at_ns", "deadline_at_ns", "old_deadline_at_ns")),
    "ttr": 100,
    "ended": None,
    "checksum": "none",
}
PUT = {**ENTRY, "kind": "full", "offset": 4, "state": "ready", "event_time_ns": 0}
PUT |= {"event_time_kind": "derived", "event_time_until": None}


def of_c(later: dict[str, Any]) -> Timeline:
    """Return the timeline of a job that was put at 0, with one later entry of C beanstalkd."""
    entry = {**ENTRY, "offset": 400, "event_time_ns": 50 * NS, "event_time_kind": "bounded"}
    entry |= {"event_time_until": EPOCH + timedelta(seconds=60), **later}
    (timeline,) = plain_timelines([PUT, entry])
    return timeline


def spans(timeline: Timeline) -> list[tuple[int, str]]:
    return [
        ((span["at"] - EPOCH) // timedelta(seconds=1), span["state"]) for span in timeline["states"]
    ]


def test_a_reserve_is_not_later_than_an_old_deadline_shows():
    """Which a touch may have set, and after which the job may have returned before its end."""
    held = {"reserves": 1, "old_deadline_at_ns": 110 * NS}
    deleted = of_c({**held, "state": "deleted", "ended": "deleted"})
    assert spans(deleted) == [(0, "ready_or_reserved"), (50, "unknown"), (60, "deleted")]
    assert (deleted["wait_s"], deleted["wait_min_s"], deleted["wait_max_s"]) == (None, 0, 10)
    assert (deleted["finish_s"], deleted["finish_min_s"], deleted["finish_max_s"]) == (None, 50, 60)
    assert (
        deleted["ready_or_reserved_s"] is deleted["first_reserve_at"] is deleted["end_at"] is None
    )
    buried = of_c({**held, "state": "buried", "buries": 1})
    assert spans(buried) == [
        *((0, "ready_or_reserved"), (10, "reserved"), (50, "unknown"), (60, "buried"))
    ]
    assert buried["delayed_s"] == 0 and buried["buried_s"] is None


def test_a_timeout_and_a_release_have_no_known_order():
    counts = {"reserves": 2, "timeouts": 1, "old_deadline_at_ns": 15 * NS, "ttr": 5}
    timed_out = of_c({**counts, "reserves": 1, "state": "deleted"})
    assert (15, "ready_or_reserved") in spans(timed_out) and (10, "reserved") in spans(timed_out)
    either = of_c({**counts, "releases": 1, "state": "deleted"})
    assert spans(either) == [(0, "ready_or_reserved"), (50, "unknown"), (60, "deleted")]


def test_a_copy_of_a_reserved_job_bounds_the_reserve():
    copy = {"kind": "full", "event_time_kind": "derived", "event_time_until": None}
    copy |= {"event_time_ns": 10 * NS, "state": "reserved", "deadline_at_ns": 110 * NS}
    timeline = of_c({**copy, "reserves": 1})
    assert (timeline["wait_s"], timeline["wait_max_s"]) == (None, 10)
    assert (timeline["state"], spans(timeline)) == ("ready_or_reserved", [(0, "ready_or_reserved")])


def test_durations_end_with_the_last_event():
    """Also if it is only bounded, and the state is known meanwhile."""
    timeline = of_c({"kind": "full", "state": "ready", "reserves": 1, "releases": 1})
    assert spans(timeline) == [(0, "ready_or_reserved")]
    assert timeline["last_at"] == EPOCH and timeline["ready_or_reserved_s"] is None
