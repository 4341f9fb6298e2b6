"""Remove files that are no longer needed, oldest first, and never too early."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from binlog.disk import after_power_loss, lay_out, numbers, take, wait_until
from binlog.reader import read_folder
from binlog.workload import Actor, check, run_steps
from core import fault_injection
from core.fault_injection import Call
from core.rig import Rig, RigClient

from beanstalkd_py import errors

FILE = 4096


def fill_files(client: RigClient, count: int) -> dict[int, list[int]]:
    """Fill this many files; map each file to its jobs."""
    jobs: dict[int, list[int]] = {}
    while len(jobs) < count:
        job = client.put(b"x" * 500)
        jobs.setdefault(int(client.job(job)["file"]), []).append(job)
    return jobs


def delete(client: RigClient, jobs: list[int]) -> None:
    for job in jobs:
        client.do(b"delete %d" % job, b"DELETED")


def test_files_are_removed_oldest_first(folder: Path) -> None:
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        jobs = fill_files(client, 4)
        delete(client, jobs[2] + jobs[3])
        assert {1, 2, 3, 4} <= set(numbers(folder))
        assert rig.counters.binlog_oldest == 1
        delete(client, jobs[1])
        wait_until(lambda: min(numbers(folder)) > 3)
        rig.tick()
        # The counter counts the request to remove a file; the file thread removes the file later.
        wait_until(lambda: rig.counters.binlog_oldest == min(numbers(folder)))


def test_an_empty_queue_needs_one_file_and_a_preallocated_one(folder: Path) -> None:
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for jobs in fill_files(client, 8).values():
            delete(client, jobs)
        wait_until(lambda: len(numbers(folder)) <= 3)


def test_a_file_is_removed_after_the_sync(folder: Path) -> None:
    """With -f MS, a file stays until its last delete is on disk."""
    with Rig(folder, file_size=FILE, sync_interval_ns=10**9) as rig:
        client = rig.client()
        jobs = fill_files(client, 2)
        rig.advance(10**9)
        delete(client, jobs[1])
        for _ in range(5):
            rig.advance(10**8)
        assert 1 in numbers(folder)
        rig.advance(5 * 10**8)
        wait_until(lambda: 1 not in numbers(folder))


@pytest.mark.parametrize(
    "nths", [range(1, 160, 7), pytest.param(range(1, 200), marks=pytest.mark.slow)]
)
def test_power_loss_at_every_sync(folder: Path, nths: range) -> None:
    """The n-th sync never ends: its data is lost, and every removal is kept."""
    for nth in nths:
        lay_out(folder, {})
        actor = Actor(f"power {nth}", put_share=0.2, unique=nth % 2 == 0, moves=nth % 3 == 0)
        with Rig(folder, file_size=FILE) as rig:
            client = rig.client()
            fault_injection.fail(Call.DATASYNC, nth=nth, error=errno.EIO)
            with pytest.raises(errors.BinlogWriteError):
                while True:
                    synced = take(folder)
                    run_steps(actor, client, 1)
        fault_injection.heal()
        lay_out(folder, after_power_loss(synced, take(folder)))
        with Rig(folder, file_size=FILE) as rig:
            check([actor], rig)


@pytest.mark.costly
def test_a_kill_after_every_step(folder: Path) -> None:
    """A start succeeds from every state, also between a move and a removal."""
    actor, copy = Actor("copies", put_share=0.15, unique=True, moves=True), folder / "copy"
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for _ in range(250):
            run_steps(actor, client, 1)
            lay_out(copy, take(folder))
            with Rig(copy, file_size=FILE) as restarted:
                check([actor], restarted)
        assert rig.counters.records_migrated > 0
    shutil.rmtree(copy)


def test_fault_7_a_moved_job_is_in_both_files_until_the_new_one_is_synced(folder: Path) -> None:
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        kept_job = client.put(b"kept" * 20)
        fault_injection.fail(Call.UNLINK, error=errno.EIO, lasting=True)  # so that every file stays
        while client.job(kept_job)["file"] == "1":
            delete(client, [client.put(b"x" * 500)])
    fault_injection.heal()
    places = [e.file for e in read_folder(folder) if e.id == kept_job and e.full]
    assert len(places) >= 2 and places[0] == 1


def is_reported(rig: Rig) -> bool:
    rig.tick()
    return any("cannot remove" in line for line in rig.warnings())


@pytest.mark.parametrize("broken_first", [True, False])
def test_failed_removals_bring_no_job_back(folder: Path, broken_first: bool) -> None:
    """A file that cannot be removed must not outlive the deletes in later files."""
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        jobs = fill_files(client, 2)
        fault_injection.fail(Call.UNLINK, nth=1 if broken_first else 2, error=errno.EIO)
        delete(client, jobs[1] + jobs[2])
        for _ in range(40):
            delete(client, [client.put(b"x" * 500)])
        wait_until(lambda: is_reported(rig))
    fault_injection.heal()
    with Rig(folder, file_size=FILE) as rig:
        assert rig.counters.ready == 0


def test_permanently_failing_removals_only_cost_space(folder: Path) -> None:
    actor = Actor("stuck", put_share=0.15)
    fault_injection.fail(Call.UNLINK, error=errno.EPERM, lasting=True)
    with Rig(folder, file_size=FILE) as rig:
        run_steps(actor, rig.client(), 400)
        wait_until(lambda: is_reported(rig))
    fault_injection.heal()
    with Rig(folder, file_size=FILE) as rig:
        check([actor], rig)


def test_the_newest_file_is_never_removed(folder: Path) -> None:
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for _ in range(100):
            delete(client, [client.put(b"x" * 100)])
            assert rig.counters.binlog_current in numbers(folder)


def test_file_numbers_only_increase(folder: Path) -> None:
    last = 0
    for _ in range(5):
        with Rig(folder, file_size=FILE) as rig:
            client = rig.client()
            jobs = fill_files(client, 2)
            assert min(jobs) > last
            last = max(jobs)
            for of_one_file in jobs.values():
                delete(client, of_one_file)
