"""Every duration and state of timelines is true, null or within bounds, by the log of the workload.

For binlogs with and without a history, and those of C beanstalkd. Their rows are those of the
independent reader, so that an error of the decoder cannot hide in bounds that are too wide.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from binlog.reader import files, read_file
from pipeline import workloads
from pipeline.jobs.plain_timelines import ends_of, entries_of, plain_timelines
from pipeline.jobs.truth import EVER, Truth
from pipeline.plain import binlog_plan, of_entries, rows
from pipeline.workloads import Run

pytestmark = pytest.mark.timeout(900)

SERVERS = {
    "history": ("--history=HISTORY", "--truncate=1"),
    "none": ("--truncate=1",),
    "c": ("--server=c",),
}
_UNWRITTEN = frozenset({"reserve", "touch", "timeout", "return"})
LACKS = {"history": frozenset(), "none": _UNWRITTEN, "c": _UNWRITTEN | {"release"}}
"""Events without an entry; a release with a delay has one."""
FEW, MANY = 800, 8000
PENDING_US = 1_000_000
"""A reserve has an entry half a second later, and a sync later yet."""

Timeline = dict[str, Any]


def made(top: Any, jobs: int) -> dict[str, Run]:
    always = (f"--jobs={jobs}", "--binlog-size=60K")
    return workloads.made(top, {name: (*always, *more) for name, more in SERVERS.items()})


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    return made(tmp_path_factory.mktemp("few"), FEW)


def wrong(
    run: Run, name: str, found: list[Timeline], until: int = EVER
) -> tuple[list[tuple[int, list[str]]], int]:
    """Return the violations by job, and the number of jobs reserved by their id without a trace."""
    jobs = workloads.lines(run)
    truths = {
        timeline["id"]: Truth(workloads.events(jobs[timeline["id"]]), until, LACKS[name])
        for timeline in found
    }
    violations = [(one["id"], list(truths[one["id"]].violations(one))) for one in found]
    hidden = sum(truth.is_hidden for truth in truths.values())
    return [(job, texts) for job, texts in violations if texts], hidden


def check(run: Run, name: str, jobs: int) -> None:
    found = plain_timelines(entries_of(run.binlog, host="ann"))
    violations, hidden = wrong(run, name, found)
    assert violations == []
    assert len(found) == jobs and hidden <= jobs / 200
    useful(name, found)
    for timeline in found:
        for one, following in pairwise(timeline["events"]):
            assert latest(one) <= latest(following)


def check_rows(run: Run) -> None:
    expected = [row for path in files(run.binlog) for row in of_entries(read_file(path))]
    found = rows(binlog_plan(run.binlog))
    assert [{name: row[name] for name in expected[0]} for row in found] == expected


def latest(event: dict[str, Any]) -> datetime:
    """Return the latest possible time of an event."""
    if event["kind"] != "bounded":
        return event["at"]
    return event["until"] or datetime.max.replace(tzinfo=UTC)


def useful(name: str, found: list[Timeline]) -> None:
    """Not everything is unknown."""
    ended = [timeline for timeline in found if timeline["end"]]

    def known(column: str) -> float:
        return sum(timeline[column] is not None for timeline in ended) / len(ended)

    assert known("wait_max_s") > 0.9 and known("finish_min_s") == 1
    if name != "c":
        assert known("finish_s") == 1 and known("buried_s") > 0.99
        assert known("ready_or_reserved_s") > 0.9
    if name == "history":
        assert min(map(known, ("ready_s", "reserved_s", "delayed_s"))) > 0.99
        assert known("wait_s") > 0.9
        assert not any(timeline["state"] == "ready_or_reserved" for timeline in found)
    else:
        assert known("first_reserve_at") < 0.1
        assert any(timeline["state"] == "ready_or_reserved" for timeline in found)


@pytest.mark.costly
@pytest.mark.parametrize("name", SERVERS)
def test_timelines_match_the_log(few: dict[str, Run], name: str) -> None:
    check(few[name], name, FEW)


@pytest.mark.parametrize("name", SERVERS)
def test_rows_match_the_independent_reader(few: dict[str, Run], name: str) -> None:
    check_rows(few[name])


@pytest.mark.slow
def test_timelines_of_thousands_of_jobs_match_the_log(tmp_path: Any) -> None:
    runs = made(tmp_path / "many", MANY)
    for name, run in runs.items():
        check(run, name, MANY)
        check_rows(run)


@pytest.mark.costly
@pytest.mark.parametrize(
    "name", ["none", *(pytest.param(name, marks=pytest.mark.slow) for name in ("history", "c"))]
)
def test_a_binlog_that_ends_anywhere_matches_the_log(few: dict[str, Run], name: str) -> None:
    """Delays have elapsed by then, and jobs are reserved."""
    entries = entries_of(few[name].binlog, host="ann")
    entries.sort(key=lambda row: (row["file_number"], row["offset"]))
    elapsed = 0
    for cut in random.Random(name).sample(range(100, len(entries)), 12):
        part = entries[:cut]
        end = ends_of(part)["ann"].data_end // 1000
        found = plain_timelines(part)
        until = end - PENDING_US if name == "history" else end
        assert wrong(few[name], name, found, until)[0] == []
        for timeline in found:
            last = timeline["events"][-1]
            elapsed += last["event"] == "due"
            delayed = last["delay"] if last["event"] in ("put", "release") else None
            assert (timeline["state"] == "delayed") == bool(delayed)
    assert elapsed > 0
