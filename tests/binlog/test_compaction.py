"""Disk space is bounded by the live jobs, whatever commands are repeated (fault 8)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from binlog.disk import numbers, wait_until
from core.rig import Rig, RigClient

FILE = 4096


def release_with_delay(client: RigClient, job: int) -> None:
    client.ask(b"reserve-job %d\r\n" % job)
    client.do(b"release %d 5 100000" % job, b"RELEASED")


def release(client: RigClient, job: int) -> None:
    client.ask(b"reserve-job %d\r\n" % job)
    client.do(b"release %d 5 0" % job, b"RELEASED")


def bury_and_kick(client: RigClient, job: int) -> None:
    client.bury(job)
    client.do(b"kick-job %d" % job, b"KICKED")


def churn(client: RigClient, _: int) -> None:
    client.do(b"delete %d" % client.put(b"c" * 300), b"DELETED")


ACTIONS = [release_with_delay, release, bury_and_kick, churn]


@pytest.mark.parametrize("interval", [0, -1], ids=["f0", "F"])
@pytest.mark.parametrize("jobs", [1, 5])
@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
def test_fault_8_repeated_commands_need_bounded_space(
    folder: Path, action: Callable[[RigClient, int], None], jobs: int, interval: int
) -> None:
    with Rig(folder, file_size=FILE, sync_interval_ns=interval) as rig:
        client = rig.client()
        kept = [client.put(b"kept" * 25) for _ in range(jobs)]
        for turn in range(600):
            action(client, kept[turn % jobs])
            rig.tick()
            span = rig.counters.binlog_current - rig.counters.binlog_oldest
            assert span <= 4, f"{span + 1} files after {turn} turns"
        wait_until(lambda: len(numbers(folder)) <= 8)
        assert rig.counters.binlog_current > 8
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        assert [client.body(job) for job in kept] == [b"kept" * 25] * jobs


def test_long_lived_jobs_among_churn(folder: Path) -> None:
    """With one long-lived job in every file, space stays within a multiple of the live bytes."""
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        kept = []
        for turn in range(1500):
            if turn % 25 == 0:
                kept.append(client.put(b"k" * 200))
            churn(client, 0)
            alive = len(kept) * (200 + 2 + len("default") + 84 + 84)
            files = rig.counters.binlog_current - rig.counters.binlog_oldest + 1
            assert (files - 1) * FILE <= 4 * alive + 4 * FILE
        assert rig.counters.records_migrated > 0
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        assert all(client.body(job) == b"k" * 200 for job in kept)


def test_compaction_cost_is_proportional_to_writes(folder: Path) -> None:
    """Compaction moves jobs in proportion to new entries, not a whole file at once."""
    with Rig(folder, file_size=1 << 16) as rig:
        client = rig.client()
        for _ in range(100):
            client.put(b"k" * 10)
        for _ in range(3000):
            before = rig.counters.records_migrated
            churn(client, 0)
            assert rig.counters.records_migrated - before <= 20


def test_moved_jobs_are_unchanged(folder: Path) -> None:
    """Moved entries keep state, order and every counter."""
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        jobs = [client.put(b"%d" % i, pri=i) for i in range(8)]
        order = [jobs[i] for i in (3, 1, 2)]
        for job in order:
            client.bury(job, 40 + job)
        release_with_delay(client, jobs[4])
        release(client, jobs[5])
        client.ask(b"reserve-job %d\r\n" % jobs[6])
        first = [client.job(job) for job in jobs]
        while any(client.job(job)["file"] == "1" for job in jobs):
            churn(client, 0)
        moved = [client.job(job) for job in jobs]
        for stats in [*first, *moved]:
            del stats["file"]
        assert moved == first
        now = rig.now
    first[6]["state"] = "ready"
    first[6]["time-left"] = "0"
    with Rig(folder, file_size=FILE, now=now) as rig:
        client = rig.client()
        shown = [client.job(job) for job in jobs]
        for stats in shown:
            del stats["file"]
        assert shown == first
        for job in order:
            assert client.ask(b"peek-buried\r\n").startswith(b"FOUND %d " % job)
            client.do(b"delete %d" % job, b"DELETED")
