"""A restart changes nothing that clients see, except that reserved jobs are ready again."""

from __future__ import annotations

from pathlib import Path

import pytest
from binlog.reader import files, read_folder
from binlog.workload import Actor, check, run_steps
from core.rig import SECOND, START, YEAR, Rig

FILE = 8192
COUNTS = ("reserves", "timeouts", "releases", "buries", "kicks")


@pytest.mark.parametrize("end", ["stopped", "killed"])
@pytest.mark.parametrize("interval", [0, 50_000_000, -1], ids=["f0", "f50", "F"])
def test_all_acknowledged_changes_survive(folder: Path, end: str, interval: int) -> None:
    # With -f MS a move waits for a sync, and time stands still here.
    actor = Actor("one", unique=True, moves=interval <= 0)
    for life in range(6):
        with Rig(folder, file_size=FILE, sync_interval_ns=interval) as rig:
            assert rig.warnings() == []
            check([actor], rig)
            if life % 3 != 2:  # one of three runs does nothing
                run_steps(actor, rig.client(), 150)
            if end == "stopped":
                rig.stop()
    assert len(actor.known) > 20 and len(actor.gone) > 20


def test_job_counters_are_unchanged(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        job = client.put(ttr=1)
        for _ in range(3):
            client.reserve()
            rig.advance(SECOND)
        client.bury(job, 7)
        client.do(b"kick 1", b"KICKED 1")
        client.reserve()
        client.do(b"release %d 9 5" % job, b"RELEASED")
        client.do(b"kick-job %d" % job, b"KICKED")
        client.bury(job, 3)
        before = client.job(job)
        now = rig.now
    assert [before[key] for key in COUNTS] == ["6", "3", "1", "2", "2"]
    for _ in range(4):
        with Rig(folder, now=now) as rig:
            after = rig.client().job(job)
            assert after == before


def test_server_counters_restart_at_zero(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        for _ in range(5):
            client.put()
        assert (rig.counters.total_jobs, rig.counters.ready) == (5, 5)
    with Rig(folder) as rig:
        assert (rig.counters.total_jobs, rig.counters.ready) == (0, 5)
        tube = rig.client().stats(b"stats-tube default")
        assert (tube["total-jobs"], tube["current-jobs-ready"]) == ("0", "5")


def test_fault_11_buried_jobs_keep_their_order(folder: Path) -> None:
    order = [5, 2, 9, 1, 8, 3]
    with Rig(folder) as rig:
        client = rig.client()
        for _ in range(9):
            client.put()
        for job in order:
            client.bury(job)  # all at the same time of the clock
        client.bury(2)  # now it is the last one
    order = [5, 9, 1, 8, 3, 2]
    for _ in range(3):
        with Rig(folder) as rig:
            client = rig.client()
            client.bury(order[0])  # each run makes the first the last
            order = [*order[1:], order[0]]
    with Rig(folder) as rig:
        client = rig.client()
        for job in order:
            assert client.ask(b"peek-buried\r\n").startswith(b"FOUND %d " % job)
            client.do(b"kick 1", b"KICKED 1")


@pytest.mark.parametrize("step", [-YEAR, YEAR])
def test_buried_jobs_keep_their_order_over_a_step_of_the_wall_clock(
    folder: Path, step: int
) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        for job in (1, 2):
            client.put()
            client.bury(job)
        rig.advance(1, wall_step=step)
        for job in (3, 4):
            client.put()
            client.bury(job)
        now = rig.now
    with Rig(folder, now=now) as rig:
        client = rig.client()
        client.put()
        client.bury(5)
    with Rig(folder, now=now) as rig:
        client = rig.client()
        for job in (1, 2, 3, 4, 5):
            assert client.ask(b"peek-buried\r\n").startswith(b"FOUND %d " % job)
            client.do(b"delete %d" % job, b"DELETED")


def test_fault_11_a_released_job_keeps_its_new_priority(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        job = client.put(pri=5)
        client.reserve()
        client.do(b"release %d 77 0" % job, b"RELEASED")
    with Rig(folder) as rig:
        stats = rig.client().job(job)
        assert (stats["pri"], stats["releases"], stats["state"]) == ("77", "1", "ready")


def test_fault_11_a_job_that_was_buried_and_then_released_is_ready(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        job = client.put()
        client.bury(job)
        client.ask(b"reserve-job %d\r\n" % job)
        client.do(b"release %d 0 0" % job, b"RELEASED")
    with Rig(folder) as rig:
        assert rig.client().job(job)["state"] == "ready"


def test_a_reserved_job_is_ready_again(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        job = client.put(b"held")
        client.reserve()
    with Rig(folder) as rig:
        client = rig.client()
        assert client.job(job)["state"] == "ready"
        assert client.body(job) == b"held"


@pytest.mark.parametrize("away", [0, 3, 10, 11, 86400])
def test_a_delay_continues_while_the_server_is_down(folder: Path, away: int) -> None:
    with Rig(folder) as rig:
        job = rig.client().put(delay=10)
    # After a reboot the monotonic clock starts again.
    now = START._replace(mono=5 * SECOND, wall=START.wall + away * SECOND)
    with Rig(folder, now=now) as rig:
        stats = rig.client().job(job)
        left = max(0, 10 - away)
        state = "delayed" if left else "ready"
        assert (stats["state"], stats["time-left"], stats["delay"]) == (state, str(left), "10")
        assert stats["age"] == str(away)
        rig.advance(left * SECOND)
        assert rig.client().job(job)["state"] == "ready"


def test_fault_12_ids_increase_over_restarts_of_an_empty_queue(folder: Path) -> None:
    last = 0
    for life in range(8):
        with Rig(folder) as rig:
            client = rig.client()
            if life in (0, 3):
                for _ in range(5):
                    job = client.put()
                    assert job == last + 1
                    last = job
                    client.do(b"delete %d" % job, b"DELETED")
            if life % 2:
                rig.stop()
    with Rig(folder) as rig:
        assert rig.client().put() == last + 1 == 11


def test_fault_12_no_first_entry_names_a_live_job(folder: Path) -> None:
    """An Invalid entry with the highest id would delete the job that has it."""
    with Rig(folder) as rig:
        rig.client().put(b"alive")
    for _ in range(3):
        with Rig(folder) as rig:
            assert rig.client().body(1) == b"alive"
    entries = [entry for entry in read_folder(folder) if not entry.is_length_entry]
    assert [entry.state for entry in entries] == ["ready"]
    with Rig(folder) as rig:
        rig.client().do(b"delete 1", b"DELETED")
    with Rig(folder) as rig:
        rig.stop()
    (entry,) = read_folder(folder)
    assert (entry.id, entry.state, entry.full, entry.offset) == (1, "invalid", False, 4)


def test_ids_of_refused_puts_are_not_reused(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        client.put()
        assert client.ask(b"put 0 0 1 1\r\nxyz") == b"EXPECTED_CRLF\r\n"
        assert client.put() == 3


def test_a_stop_truncates_the_last_file_and_removes_preallocated_ones(folder: Path) -> None:
    with Rig(folder) as rig:
        rig.client().put(b"x" * 100)
        rig.stop()
    path, length_file = files(folder)
    assert path.stat().st_size == 4 + 84 + len(b"default") + 102
    assert length_file.stat().st_size == 4 + 84
    assert sorted(item.name for item in folder.iterdir()) == ["binlog.1", "binlog.2", "lock"]


@pytest.mark.parametrize("size", [65535, 65534, 0, 1])
def test_fault_1_the_largest_job_is_not_too_big_at_restart(folder: Path, size: int) -> None:
    with Rig(folder, file_size=1 << 20) as rig:
        client = rig.client()
        jobs = [client.put(bytes([65 + i]) * size) for i in range(3)]
    with Rig(folder, file_size=1 << 20) as rig:
        client = rig.client()
        assert [client.body(job) for job in jobs] == [bytes([65 + i]) * size for i in range(3)]


def test_a_smaller_job_limit_loses_no_stored_job(folder: Path) -> None:
    with Rig(folder) as rig:
        rig.client().put(b"x" * 1000)
    with Rig(folder, max_job_size=10) as rig:
        client = rig.client()
        assert client.body(1) == b"x" * 1000
        assert client.ask(b"put 0 0 1 11\r\n" + b"x" * 13) == b"JOB_TOO_BIG\r\n"
