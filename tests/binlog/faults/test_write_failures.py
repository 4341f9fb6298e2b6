"""A write or sync fails: no later change is acknowledged, and no earlier one is lost.

Every n-th call fails once. Because all later calls would succeed, the tests detect a core that
continues after the failure.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from binlog.sockets import Crowd
from binlog.workload import Actor, check, replies_in, run_steps
from core import fault_injection
from core.fault_injection import Call
from core.rig import Rig

from beanstalkd_py import errors

FILE = 4096
KINDS = [Call.WRITE, Call.DATASYNC]
ERRORS = [errno.EIO, errno.ENOSPC]
EVERYDAY = [*range(1, 12), *range(13, 200, 17)]


def counted() -> list[int]:
    return [fault_injection.count(kind) for kind in (Call.WRITE, Call.DATASYNC, Call.TRUNCATE)]


@pytest.mark.parametrize("error", ERRORS, ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("kind", KINDS, ids=["write", "sync"])
@pytest.mark.parametrize("nths", [EVERYDAY, pytest.param(range(1, 201), marks=pytest.mark.slow)])
def test_the_nth_call(folder: Path, kind: Call, error: int, nths: list[int]) -> None:
    for nth in nths:
        shutil.rmtree(folder)
        folder.mkdir()
        actor = Actor(f"{kind} {nth}", unique=nth % 2 == 0, moves=nth % 3 == 0)
        with Rig(folder, file_size=FILE) as rig:
            client = rig.client()
            fault_injection.fail(kind, nth=nth, error=error)
            with pytest.raises(errors.BinlogWriteError, match="nothing can be acknowledged"):
                run_steps(actor, client, 1000)
            check_stopped(rig)
        fault_injection.heal()
        with Rig(folder, file_size=FILE) as rig:
            check([actor], rig)


def check_stopped(rig: Rig) -> None:
    calls = counted()
    core, session = rig.core, rig.core.open(rig.now)
    assert core.output(session) == b""
    core.feed(session, b"put 0 0 9 1\r\nx\r\nlist-tube-used\r\n", rig.now)
    for _ in range(3):
        with pytest.raises(errors.BinlogWriteError):
            core.commit(rig.now)
        core.tick(rig.now)
        assert core.output(session) == b""
    with pytest.raises(errors.BinlogWriteError):
        core.stop()
    assert core.output(session) == b""
    assert counted() == calls


@pytest.mark.costly
@pytest.mark.parametrize("error", ERRORS, ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("kind", KINDS, ids=["write", "sync"])
@pytest.mark.parametrize("nths", [EVERYDAY, pytest.param(range(1, 201), marks=pytest.mark.slow)])
def test_the_nth_call_with_sockets(folder: Path, kind: Call, error: int, nths: list[int]) -> None:
    """A thread syncs while the next commands are executed."""
    for nth in nths:
        shutil.rmtree(folder)
        folder.mkdir()
        with Rig(folder, file_size=FILE) as rig:
            crowd = Crowd(rig, [f"{kind} {nth} {who}" for who in range(8)])
            fault_injection.fail(kind, nth=nth, error=error)
            crowd.run_until_fatal()
            calls = counted()
            crowd.check_no_later_replies()
            assert counted() == calls
        fault_injection.heal()
        crowd.close()
        with Rig(folder, file_size=FILE) as rig:
            check(crowd.actors, rig)


@pytest.mark.parametrize("kind", KINDS, ids=["write", "sync"])
def test_all_replies_of_the_round_are_held(folder: Path, kind: Call) -> None:
    """No client receives a reply that depends on the failed call."""
    with Rig(folder) as rig:
        producer, reader, consumer = rig.client(), rig.client(), rig.client()
        core = rig.core
        core.feed(consumer.session, b"reserve\r\n", rig.now)
        fault_injection.fail(kind, error=errno.EIO)
        core.feed(producer.session, b"put 0 0 9 1\r\nx\r\n", rig.now)
        core.feed(reader.session, b"peek 1\r\nstats-job 1\r\nstats-tube default\r\n", rig.now)
        with pytest.raises(errors.BinlogWriteError):
            core.commit(rig.now)
        for client in (producer, reader, consumer):
            assert core.output(client.session) == b""


def test_a_sync_that_fails_at_the_end_is_reported(folder: Path) -> None:
    with Rig(folder, sync_interval_ns=10**12) as rig:
        rig.client().put()
        fault_injection.fail(Call.DATASYNC, error=errno.EIO)
        with pytest.raises(errors.BinlogWriteError):
            rig.core.stop()


def test_earlier_replies_are_still_sent(folder: Path) -> None:
    """The client can still read replies to commands that were committed before the failure."""
    with Rig(folder) as rig:
        client = rig.client()
        assert replies_in(client.ask(b"put 0 0 9 1\r\nx\r\n")) == [b"INSERTED 1\r\n"]
        fault_injection.fail(Call.WRITE, error=errno.EIO)
        with pytest.raises(errors.BinlogWriteError):
            client.ask(b"delete 1\r\n")
    fault_injection.heal()
    with Rig(folder) as rig:
        assert rig.client().body(1) in (b"x", None)
