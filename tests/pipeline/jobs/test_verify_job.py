"""`verify` of intact and of modified binlogs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core.history.simulated_binlogs import (
    BURIED,
    DELAYED,
    HEADER,
    INVALID,
    READY,
    SECOND,
    START,
    Job,
    entry_bytes,
    last_id_bytes,
)
from pipeline import workloads

from beanstalkd_py import pipeline
from beanstalkd_py.pipeline.jobs.verify import COLUMNS, verify

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

RUNS = {
    "history": ("--jobs=300", "--binlog-size=20K", "--history=HISTORY", "--truncate=1"),
    "workers": ("--jobs=300", "--binlog-size=20K", "--workers=2"),
    "gone": ("--jobs=800", "--binlog-size=20K", "--no-keep-files", "--profile=steady"),
    "c-gone": (
        "--jobs=800",
        "--binlog-size=20K",
        "--server=c",
        "--no-keep-files",
        "--profile=steady",
    ),
}
NO_FULL = "has no full entry before it"
BEHIND = "is there again behind its end"


def a_job(number: int) -> Job:
    return Job(number, b"mail", b"body %d" % number, 10, 0, 60, START + number)


def full(job: Job, state: int = READY) -> bytes:
    return entry_bytes(job, state, START, 1, full=True, ours=False)


def short(job: Job, state: int, **counters: int) -> bytes:
    counted = replace(job, counters={**job.counters, **counters})
    return entry_bytes(counted, state, START + 90 * SECOND, 1, full=False, ours=False)


def copied(job: Job, **counters: int) -> bytes:
    return full(replace(job, counters={**job.counters, **counters}))


SOUND = b"".join(
    full(job) + short(job, BURIED, reserves=1, buries=1) + short(job, INVALID, reserves=1, buries=1)
    for job in map(a_job, range(1, 6))
)
ODD = a_job(9)
LATER = replace(ODD, created=START + SECOND, tube=b"default", ttr=1)

# Entries after the valid ones, and their violation; all of job 9.
SPOILED: dict[str, tuple[list[bytes], list[str]]] = {
    "no-full": (
        [short(ODD, BURIED, reserves=1, buries=1), short(ODD, INVALID)],
        [NO_FULL, "its buries go back", "its reserves go back"],
    ),
    "only-an-end": ([short(ODD, INVALID)], [NO_FULL]),
    "counters": (
        [
            full(ODD),
            short(ODD, DELAYED, reserves=2, releases=2, timeouts=1, kicks=1),
            short(ODD, BURIED, reserves=3, releases=1, timeouts=0, kicks=0, buries=1),
        ],
        ["its kicks go back", "its releases go back", "its timeouts go back"],
    ),
    "old-copy": (
        [full(ODD), short(ODD, BURIED, reserves=1, buries=1), copied(ODD, reserves=1)],
        ["its buries go back"],
    ),
    "two-ends": ([full(ODD), short(ODD, INVALID), short(ODD, INVALID)], [BEHIND]),
    "copied-again": ([full(ODD), short(ODD, INVALID), full(ODD)], [BEHIND]),
    "tube": ([full(ODD), full(replace(ODD, tube=b"default"))], ["its tube changes"]),
    "ttr": ([full(ODD), full(replace(ODD, ttr=61))], ["its TTR changes"]),
    "body": (
        [full(ODD), full(replace(ODD, body=b"one that is longer"))],
        ["the size of its body changes"],
    ),
    "sound": ([full(ODD), short(ODD, BURIED, buries=1), copied(ODD, buries=1)], []),
    "next-of-its-id": (
        [full(ODD), short(ODD, INVALID), full(LATER), last_id_bytes(77, START, 1)],
        [],
    ),
}
ELSEWHERE = ("tube", "ttr", "body")


def test_servers_write_no_violations(spark, tmp_path):
    """With and without the oldest files."""
    runs = workloads.made(tmp_path / "made", RUNS)
    assert not (runs["gone"].binlog / "binlog.1").exists()
    assert not (runs["c-gone"].binlog / "binlog.1").exists()
    paths = [str(run.binlog) for run in runs.values()]
    entries = pipeline.read_binlog(
        spark, paths, columns=list(COLUMNS), hostPattern="/made/([^/]+)/"
    )
    assert verify(entries).collect() == []


def test_exactly_the_injected_violations_are_found(spark, tmp_path):
    places = {f"{name}/binlog.1": HEADER + SOUND + b"".join(SPOILED[name][0]) for name in SPOILED}
    for name in ELSEWHERE:
        sound, other = SPOILED[name][0]
        places[f"{name}/binlog.1"] = HEADER + SOUND + sound
        places[f"{name}/binlog.2"] = HEADER + other
    places["two/shard-000/binlog.1"] = HEADER + SOUND + full(ODD)
    places["two/shard-001/binlog.1"] = HEADER + full(ODD)
    # Without the first file jobs that have ended, or were copied later, need no full entry.
    ended = short(a_job(1), BURIED, buries=1) + short(a_job(1), INVALID, buries=1)
    copied_later = short(a_job(2), BURIED, buries=1) + copied(a_job(2), buries=1)
    there = short(a_job(3), BURIED, buries=1)
    places["gone/binlog.7"] = places["not-gone/binlog.7"] = HEADER + ended + copied_later + there
    places["not-gone/binlog.1"] = HEADER + full(a_job(8))
    for place, data in places.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_bytes(data)
    entries = pipeline.read_binlog(spark, f"{tmp_path}/*", columns=list(COLUMNS))
    found: dict[str, list[tuple[str, str, int, int, str]]] = {}
    for row in verify(entries).collect():
        found.setdefault(row.host, []).append((row.shard, row.file, row.offset, row.id, row.what))
    for name, (_, expected) in SPOILED.items():
        actual = found.pop(name, [])
        assert sorted(what for *_, what in actual) == expected, name
        file, least = ("binlog.2", 4) if name in ELSEWHERE else ("binlog.1", len(HEADER + SOUND))
        assert all(each[:2] == ("", file) and each[3] == 9 and each[2] >= least for each in actual)
    at = {1: 4, 2: 4 + len(ended), 3: 4 + len(ended + copied_later)}
    assert found.pop("two") == [("shard-001", "binlog.1", 4, 9, "is in two shards")]
    assert found.pop("gone") == [("", "binlog.7", at[3], 3, NO_FULL)]
    assert sorted(found.pop("not-gone")) == sorted(
        ("", "binlog.7", at[job], job, NO_FULL) for job in (1, 2, 3)
    )
    assert found == {}
