"""New files cannot be created: only puts are refused, and puts work again once they can be."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest
from binlog.disk import take, wait_until
from binlog.workload import Actor, check, run_steps
from core import fault_injection
from core.fault_injection import Call
from core.rig import SECOND, Rig, RigClient, put_line

from beanstalkd_py import errors
from beanstalkd_py.core._core import lib
from beanstalkd_py.core.tube_policy import TubePolicy

FILE = 4096
KINDS = [Call.FILL, Call.OPEN, Call.RENAME, Call.SYNC]
ERRORS = [errno.ENOSPC, errno.EIO, errno.EMFILE]


def fill_up(client: RigClient, size: int = 300) -> list[int]:
    """Put jobs until a put is refused."""
    jobs: list[int] = []
    for _ in range(1000):
        reply = client.ask(put_line(b"x" * size, ttr=1000))
        if reply == b"OUT_OF_MEMORY\r\n":
            return jobs
        assert reply.startswith(b"INSERTED ")
        jobs.append(int(reply.split()[1]))
    raise AssertionError("no put was refused")


def heal(rig: Rig) -> None:
    """Remove the fault and wait, because attempts that began earlier may still fail."""
    fault_injection.heal()
    for _ in range(6):
        time.sleep(0.005)
        rig.advance(SECOND)


@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_job_can_be_finished_and_puts_work_again(
    folder: Path, kind: Call, error: int
) -> None:
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        client.put()
        fault_injection.fail(kind, error=error, lasting=True)
        jobs = fill_up(client)
        assert any("puts are refused" in line for line in rig.warnings())
        assert client.ask(put_line(b"x" * 300)) == b"OUT_OF_MEMORY\r\n"
        for job in jobs:
            client.do(b"delete %d" % job, b"DELETED")
        heal(rig)
        client.put(b"y" * 300)
        assert any("puts are accepted" in line for line in rig.warnings())
        wait_until(lambda: not list(folder.glob("*.new")))
    with Rig(folder) as rig:
        assert rig.counters.ready == 2


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_failure_is_logged_once(folder: Path, kind: Call) -> None:
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        client.put()
        fault_injection.fail(kind, error=errno.ENOSPC, lasting=True)
        fill_up(client)
        for _ in range(100):
            client.ask(put_line(b"x" * 300))
            rig.advance(SECOND)
        for text in ("cannot make binlog.", "the binlog is full: puts are refused"):
            assert sum(text in line for line in rig.warnings()) == 1


def test_puts_are_refused_on_a_full_disk(folder: Path) -> None:
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        client.put()
        fault_injection.fail(Call.FILL, error=errno.ENOSPC, lasting=True)
        while not rig.counters.binlog_refusing:
            client.put(b"x" * 300)
            time.sleep(0.005)
        client.put(b"x" * 300)
        assert rig.counters.binlog_full == 0
        assert not any("binlog is full" in line for line in rig.warnings())
        fill_up(client)
        assert rig.counters.binlog_full == 1
        assert any("binlog is full" in line for line in rig.warnings())
        heal(rig)
        # No client has sent a command since.
        assert rig.counters.binlog_full == 0
        assert "there is space for the binlog again: puts are accepted" in rig.warnings()


def test_a_job_that_needs_a_file_of_its_own_does_not_make_the_binlog_full(folder: Path) -> None:
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        fault_injection.fail(Call.FILL, error=errno.ENOSPC, lasting=True)
        assert client.ask(put_line(b"x" * 3 * FILE)) == b"OUT_OF_MEMORY\r\n"
        assert rig.counters.binlog_full == 0
        client.put(b"x" * 300)


def test_puts_refused_for_lack_of_space_are_counted(folder: Path) -> None:
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        counts = rig.counters.refused_puts
        fault_injection.fail(Call.FILL, error=errno.ENOSPC, lasting=True)
        replies = [client.ask(put_line(b"x" * 300)) for _ in range(50)]
        count = replies.count(b"OUT_OF_MEMORY\r\n")
        assert count > 0
        assert counts[lib.BS_REFUSED_BINLOG_FULL] == count
        assert sum(counts) == count


def test_fault_4_a_refused_bury_or_release_changes_nothing(folder: Path) -> None:
    """The job stays reserved by its client, which may retry or delete it."""
    with Rig(folder, file_size=FILE) as rig:
        client, other = rig.client(), rig.client()
        delayed = client.put(b"d", delay=1000)
        buried = client.put(b"b")
        client.bury(buried)
        held = client.put(b"h", ttr=1000)
        fault_injection.fail(Call.FILL, error=errno.ENOSPC, lasting=True)
        assert client.reserve() == held
        fill_up(client)
        exhaust(client)
        before = client.job(held)
        client.do(b"bury %d 7" % held, b"INTERNAL_ERROR")
        client.do(b"release %d 7 9" % held, b"OUT_OF_MEMORY")
        client.do(b"release %d 7 0" % held, b"OUT_OF_MEMORY")
        client.do(b"kick-job %d" % delayed, b"NOT_FOUND")
        client.do(b"kick-job %d" % buried, b"NOT_FOUND")
        client.do(b"kick 10", b"KICKED 0")
        assert client.job(held) == before
        assert client.job(buried)["state"] == "buried"
        assert client.job(delayed)["state"] == "delayed"
        other.do(b"delete %d" % held, b"NOT_FOUND")
        client.do(b"touch %d" % held, b"TOUCHED")
        for job in (held, buried, delayed):
            client.do(b"delete %d" % job, b"DELETED")


@pytest.mark.parametrize("then", ["bury", "delete", "move:dead"])
def test_a_job_that_a_policy_ends_on_a_full_disk(folder: Path, then: str) -> None:
    """It leaves its client, is in one state, and can be deleted."""
    with Rig(folder, file_size=FILE) as rig:
        rig.core.set_policies([TubePolicy("default", max_reserves=1, then=then)])
        client = rig.client()
        held = client.put(b"h", ttr=1000)
        fault_injection.fail(Call.FILL, error=errno.ENOSPC, lasting=True)
        assert client.reserve() == held
        fill_up(client)
        exhaust(client)
        client.do(b"release %d 7 9" % held, b"RELEASED")
        if then == "delete":
            client.do(b"delete %d" % held, b"NOT_FOUND")
        else:
            assert client.job(held)["state"] == "buried"
            client.do(b"delete %d" % held, b"DELETED")


def exhaust(client: RigClient) -> None:
    """Bury and kick a job until all remaining space is reserved for deletes."""
    job = client.reserve()
    for _ in range(1000):
        if client.ask(b"bury %d 0\r\n" % job) == b"INTERNAL_ERROR\r\n":
            return
        if client.ask(b"kick-job %d\r\n" % job) == b"NOT_FOUND\r\n":
            return
        assert client.ask(b"reserve-job %d\r\n" % job).startswith(b"RESERVED")
    raise AssertionError("room without end")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_nth_allocation(folder: Path, kind: Call) -> None:
    """One failed call causes at most one refusal, and every acknowledged job is kept.

    Without space, a release without delay succeeds without an entry. When the file thread meets the
    failure is random, so this actor makes no such releases.
    """
    actor = Actor(f"allocation {kind}", put_share=0.5, plain_releases=False)
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for nth in range(1, 12):
            fault_injection.fail(kind, nth=nth, error=errno.EIO)
            run_steps(actor, client, 40)
            rig.advance(SECOND)
        heal(rig)
        refused = actor.refused
        run_steps(actor, client, 40)
        assert actor.refused == refused
    with Rig(folder, file_size=FILE) as rig:
        check([actor], rig)


@pytest.mark.parametrize("kind", [*KINDS, Call.LOCK], ids=lambda kind: kind.name)
def test_a_start_that_fails_changes_nothing(folder: Path, kind: Call) -> None:
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for _ in range(20):
            client.put(b"x" * 300)
        rig.stop()
    before = take(folder)
    fault_injection.fail(kind, error=errno.EIO, lasting=True)
    with pytest.raises(errors.BeanstalkdError, match=r"cannot (use|sync) binlog folder .*: Input"):
        Rig(folder, file_size=FILE)
    fault_injection.heal()
    assert take(folder) == before
    with Rig(folder, file_size=FILE) as rig:
        assert rig.counters.ready == 20


def test_a_job_larger_than_a_file_gets_a_larger_file(folder: Path) -> None:
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for size in (FILE, 100, 3 * FILE, 10 * FILE, FILE - 100):
            client.put(b"x" * size)
        rig.stop()
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        assert [len(client.body(job)) for job in range(1, 6)] == [
            *(FILE, 100, 3 * FILE, 10 * FILE, FILE - 100)
        ]
        assert rig.counters.binlog_max_size == FILE
        for job in range(1, 6):
            client.do(b"delete %d" % job, b"DELETED")
        for _ in range(200):
            client.do(b"delete %d" % client.put(b"x" * 300), b"DELETED")
        wait_until(lambda: max(map(len, take(folder).values())) == FILE)


def test_a_job_larger_than_a_file_is_refused_on_a_full_disk_and_all_can_be_deleted(
    folder: Path,
) -> None:
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        jobs = [client.put(b"x" * 300) for _ in range(40)]
        fault_injection.fail(Call.FILL, error=errno.ENOSPC, lasting=True)
        assert client.ask(put_line(b"x" * 2 * FILE)) == b"OUT_OF_MEMORY\r\n"
        for job in jobs:
            client.do(b"delete %d" % job, b"DELETED")
        fault_injection.heal()


def test_a_truncate_needs_no_new_file(folder: Path) -> None:
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for _ in range(0, 3000, 100):
            client.ask_much(put_line(b"x") * 100)
        fault_injection.fail(Call.FILL, error=errno.ENOSPC, lasting=True)
        jobs = 3000 + len(fill_up(client))
        client.do(b"truncate default", b"TRUNCATED %d" % jobs)
        rig.stop()
        fault_injection.heal()
    with Rig(folder) as rig:
        assert rig.counters.ready == 0
        assert rig.warnings() == []


def test_a_truncate_without_space_for_all_deletes_changes_nothing(folder: Path) -> None:
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        jobs = [client.put(delay=1000) for _ in range(200)]
        rig.stop()
    fault_injection.fail(Call.FILL, nth=3, error=errno.ENOSPC, lasting=True)
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        client.do(b"truncate default", b"INTERNAL_ERROR")
        assert rig.counters.delayed == len(jobs)
        assert client.ask(b"list-jobs default delayed 0 1\r\n").endswith(b"next: 1\n\r\n")
        client.do(b"delete %d" % jobs.pop(), b"DELETED")
        heal(rig)
        client.put()
        client.do(b"truncate default", b"TRUNCATED %d" % (len(jobs) + 1))
