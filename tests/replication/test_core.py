"""A core whose replies wait until its binlog is stored elsewhere."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from binlog.workload import Actor, Step, replies_in
from core.rig import Rig
from processes import eventually
from replication.memory_log import MemoryCluster, MemoryLog
from replication.replicas import FILE, FLAGS, Replicator, Standby, replicated

from beanstalkd_py.core.clocks import Now, read_clocks
from beanstalkd_py.core.core import Core, CoreConfig, Run
from beanstalkd_py.core.shared_memory import (
    LEASE_ENDED,
    durable_position,
    new_shared,
    set_lease_end,
)
from beanstalkd_py.errors import CoreError
from beanstalkd_py.replication.lease import boot_ns

MILLISECOND = 1_000_000
SECOND = 1_000_000_000
LIMIT_S = 10.0
PUT = b"put 0 0 100 4\r\nbody\r\n"


def adopted(core: Core) -> socket.socket:
    ours, theirs = socket.socketpair()
    core.adopt(theirs.detach())
    ours.setblocking(False)
    return ours


def run_until(core: Core, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "it does not become true"
        core.run(MILLISECOND, linger=True)


def is_readable(one: socket.socket) -> bool:
    return bool(select.select([one], [], [], 0)[0])


def settle(core: Core) -> None:
    """Run rounds until nothing happens for a while."""
    for _ in range(20):
        core.run(MILLISECOND, linger=True)


def test_a_reply_waits_for_the_replicator_and_others_do_not(folder: Path) -> None:
    with replicated(folder) as (core, replicator):
        replicator.holding.set()
        writer, reader = adopted(core), adopted(core)
        writer.sendall(PUT)
        settle(core)
        assert replicator.has_offer() and not is_readable(writer)
        reader.sendall(b"list-tube-used\r\n")
        run_until(core, lambda: is_readable(reader))
        settle(core)
        assert not is_readable(writer)
        replicator.holding.clear()
        run_until(core, lambda: is_readable(writer))
        assert writer.recv(100) == b"INSERTED 1\r\n"


def test_a_start_waits_until_the_recovered_jobs_are_stored(folder: Path, tmp_path: Path) -> None:
    """A worker that was killed may have written jobs that its replicator never got."""
    log = MemoryLog(MemoryCluster())
    with replicated(folder, log) as (core, replicator):
        replicator.holding.set()
        client = adopted(core)
        client.sendall(PUT)
        run_until(core, replicator.has_offer)
        settle(core)
        assert not is_readable(client)
    with replicated(folder, log, epoch=2):
        standby = Standby(log, tmp_path / "copy")
        standby.follow()
    with Rig(standby.copy.folder) as rig:
        assert rig.client().body(1) == b"body"


def test_recovered_jobs_are_not_archived_before_they_are_stored(folder: Path) -> None:
    """A worker that was killed may have written an end that the queue will never have."""
    log = MemoryLog(MemoryCluster())
    with replicated(folder, log, history=True) as (core, _):
        client = adopted(core)
        client.sendall(PUT)
        run_until(core, lambda: is_readable(client))
    replicator = Replicator(log, folder, epoch=2)
    replicator.holding.set()
    counters = replicator.shared.worker[0]
    core = Core(CoreConfig(str(folder), FILE, history=True), replicator.shared)
    replicator.replicate(core)
    starting = threading.Thread(target=core.recover)
    starting.start()
    try:
        assert eventually(replicator.has_offer, LIMIT_S)
        assert durable_position(counters) == (0, 0)
    finally:
        replicator.holding.clear()
        starting.join()
        stored = durable_position(counters)
        core.close()
        replicator.close()
    assert stored is not None and stored > (1, 4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("no_pauses")
def test_the_copy_has_every_acknowledged_job(folder: Path, tmp_path: Path, seed: int) -> None:
    """Also after kills and stops, with a log that often fails."""
    log = MemoryLog(MemoryCluster(), faults=0.2 if seed else 0.0, seed=seed)
    actor = Actor(f"replicate {seed}", unique=seed == 1, moves=seed == 2, largest=1500)
    standby = Standby(log, tmp_path / "copy")
    for start in range(3):
        with replicated(folder, log, epoch=start + 1) as (core, _):
            client = adopted(core)
            for number in range(250):
                client.sendall(actor.next())
                assert actor.pending is not None
                actor.take(replies_to(actor.pending, core, client))
                if number % 50 == 0:
                    standby.follow()
                    standby.check(actor, tmp_path / "started")
            if start == 1:
                core.stop()
        standby.follow()
        standby.check(actor, tmp_path / "started")
        fresh = Standby(log, tmp_path / f"fresh-{start}")
        fresh.follow()
        fresh.check(actor, tmp_path / "started")


def replies_to(step: Step, core: Core, client: socket.socket) -> list[bytes]:
    received = b""
    while len(replies := replies_in(received)) < len(step.words):
        run_until(core, lambda: is_readable(client))
        received += client.recv(1 << 16)
    return replies


def test_no_file_is_removed_before_it_is_stored(folder: Path) -> None:
    with replicated(folder) as (core, replicator):
        client = adopted(core)
        client.sendall(b"put 0 0 100 2000\r\n%b\r\n" % (b"x" * 2000) * 3)
        run_until(core, lambda: is_readable(client))
        replicator.holding.set()
        settle(core)
        client.sendall(b"delete 1\r\ndelete 2\r\ndelete 3\r\n")
        settle(core)
        first = folder / "binlog.1"
        assert first.exists()
        replicator.holding.clear()
        run_until(core, lambda: not first.exists())


def test_nothing_leaves_after_the_end_of_the_lease(folder: Path) -> None:
    with replicated(folder) as (core, replicator):
        set_lease_end(replicator.shared, boot_ns() + 100 * SECOND)
        client = adopted(core)
        client.sendall(b"list-tube-used\r\n")
        run_until(core, lambda: is_readable(client))
        client.recv(100)
        set_lease_end(replicator.shared, LEASE_ENDED)
        client.sendall(b"list-tube-used\r\n")
        run_until(core, lambda: bool(core.run(0, linger=False) & Run.FATAL))
        assert "the lease of this server has ended" in core.error
        assert not is_readable(client)


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_stop_waits_for_the_replicator_until_the_lease_ends(
    folder: Path, tmp_path: Path, is_lost: bool
) -> None:
    log = MemoryLog(MemoryCluster())
    actor = Actor("stop")
    with replicated(folder, log) as (core, replicator):
        replicator.holding.set()
        client = adopted(core)
        client.sendall(actor.next())
        settle(core)

        def end() -> None:
            if is_lost:
                set_lease_end(replicator.shared, LEASE_ENDED)
            else:
                replicator.holding.clear()

        timer = threading.Timer(0.2, end)
        timer.start()
        try:
            with pytest.raises(CoreError) if is_lost else contextlib.nullcontext():
                core.stop()
        finally:
            timer.join()
        received = client.recv(1 << 16)
        assert (b"INSERTED" in received) != is_lost
        if is_lost:
            return
        actor.take(replies_in(received))
    standby = Standby(log, tmp_path / "copy")
    standby.follow()
    standby.check(actor, tmp_path / "started")
    names = sorted(path.name for path in folder.iterdir() if path.name.startswith("binlog"))
    assert names == sorted(path.name for path in standby.copy.folder.iterdir())


@pytest.mark.parametrize("interval", [-1, 50 * MILLISECOND])
def test_a_core_that_does_not_sync_before_replies_is_refused(folder: Path, interval: int) -> None:
    refuse_to_replicate(CoreConfig(str(folder), sync_interval_ns=interval))


def test_a_core_without_a_binlog_is_refused() -> None:
    refuse_to_replicate(CoreConfig())


def refuse_to_replicate(config: CoreConfig) -> None:
    core = Core(config, new_shared())
    with contextlib.closing(core), pytest.raises(CoreError):
        core.replicate(os.eventfd(0, FLAGS), os.eventfd(0, FLAGS))


def stopped_with_reserved_jobs(folder: Path) -> None:
    """Let a client reserve jobs 1 to 5 of 6 for 100 seconds, and stop the core in order."""
    with replicated(folder) as (core, _):
        client = adopted(core)
        client.sendall(b"put 0 0 100 4\r\nbody\r\n" * 6 + b"reserve-batch 5 0\r\n")
        received = b""
        while received.count(b"body") < 5:
            run_until(core, lambda: is_readable(client))
            received += client.recv(1 << 16)
        core.stop()


def test_a_planned_stop_keeps_reservations_for_any_client(folder: Path) -> None:
    stopped_with_reserved_jobs(folder)
    now = read_clocks()
    with Rig(folder, now=now) as rig:
        client, other = rig.client(), rig.client()
        assert rig.counters.reserved == 5
        assert client.reserve() == 6
        client.do(b"reserve-job 1", b"NOT_FOUND")
        assert 90 < int(client.job(1)["time-left"]) <= 100
        client.do(b"delete 1", b"DELETED")
        client.do(b"release 2 7 0", b"RELEASED")
        client.do(b"bury 3 8", b"BURIED")
        client.do(b"touch 4", b"TOUCHED")
        other.do(b"touch 4", b"NOT_FOUND")  # it is held by the client that touched it
        client.close()
        states = {number: other.job(number)["state"] for number in range(2, 7)}
        assert states == {2: "ready", 3: "buried", 4: "ready", 5: "reserved", 6: "ready"}
        rig.advance(101 * SECOND)
        assert other.job(5)["state"] == "ready"
        assert rig.counters.reserved == 0


def test_reservations_outlive_several_stops(folder: Path) -> None:
    """A stop compacts nothing: copies of jobs would be behind the entries that keep them."""
    log = MemoryLog(MemoryCluster())
    with replicated(folder, log) as (core, _):
        client = adopted(core)
        client.sendall(
            b"put 0 0 100 4\r\nbody\r\n" * 6
            + b"".join(b"delete %d\r\n" % job for job in range(1, 6))
        )
        client.sendall(b"reserve\r\n")
        received = b""
        while b"RESERVED 6" not in received:
            run_until(core, lambda: is_readable(client))
            received += client.recv(1 << 16)
        core.stop()
    for epoch in range(2, 6):
        with replicated(folder, log, epoch=epoch) as (core, _):
            core.stop()
    with Rig(folder, now=read_clocks()) as rig:
        assert rig.client().job(6)["state"] == "reserved"


def test_reservations_outlive_a_compaction_and_a_kill(folder: Path) -> None:
    """The copies of the jobs are the last entries then, so they have to keep the reservations."""
    stopped_with_reserved_jobs(folder)
    now = read_clocks()
    with Rig(folder, file_size=FILE, now=now) as rig:
        client = rig.client()
        client.do(b"touch 1", b"TOUCHED")
        for _ in range(100):
            client.do(b"delete %d" % client.put(b"x" * 200), b"DELETED")
        assert rig.counters.binlog_oldest > 1
        assert rig.counters.records_migrated >= 5
        rig.tick()
    with Rig(folder, file_size=FILE, now=now) as rig:
        client = rig.client()
        states = [client.job(number)["state"] for number in range(1, 7)]
        assert states == ["ready", *["reserved"] * 4, "ready"]
        client.do(b"delete 2", b"DELETED")


@pytest.mark.parametrize("count", [10, 300])
def test_a_stop_keeps_more_reservations_than_a_file_has_entries(folder: Path, count: int) -> None:
    with replicated(folder) as (core, _):
        client = adopted(core)
        client.sendall(b"put 0 0 1000 4\r\nbody\r\n" * count + b"reserve-batch %d 0\r\n" % count)
        received = b""
        while received.count(b"body") < count:
            run_until(core, lambda: is_readable(client))
            received += client.recv(1 << 16)
        core.stop()
    with Rig(folder, now=read_clocks()) as rig:
        assert rig.counters.reserved == count


def test_a_reservation_that_a_client_continues_ends_with_it(folder: Path) -> None:
    """Also over a kill: the entry that kept it is not the last one any more."""
    stopped_with_reserved_jobs(folder)
    now = read_clocks()
    with Rig(folder, now=now) as rig:
        client = rig.client()
        client.do(b"touch 1", b"TOUCHED")
        client.close()
    with Rig(folder, now=now) as rig:
        assert rig.client().job(1)["state"] == "ready"
        assert rig.counters.reserved == 4


def test_a_reservation_ends_at_its_deadline_although_the_server_was_away(folder: Path) -> None:
    stopped_with_reserved_jobs(folder)
    now = read_clocks()
    with Rig(folder, now=Now(now.mono, now.wall + 101 * SECOND)) as rig:
        assert (rig.counters.reserved, rig.counters.ready) == (0, 6)


def test_a_clock_that_was_set_back_does_not_lengthen_a_reservation(folder: Path) -> None:
    stopped_with_reserved_jobs(folder)
    now = read_clocks()
    with Rig(folder, now=Now(now.mono, now.wall - 1000 * SECOND)) as rig:
        assert rig.counters.reserved == 5
        rig.advance(100 * SECOND)
        assert rig.counters.reserved == 0


def test_after_a_kill_reserved_jobs_are_ready(folder: Path) -> None:
    with replicated(folder) as (core, _):
        client = adopted(core)
        client.sendall(PUT + b"reserve\r\n")
        received = b""
        while b"RESERVED" not in received:
            run_until(core, lambda: is_readable(client))
            received += client.recv(1 << 16)
    with Rig(folder) as rig:
        assert (rig.counters.reserved, rig.counters.ready) == (0, 1)
