"""Tube policies that were set online and the progress of schedules, over failovers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.operator import Operator
from processes import children, eventually
from replication.servers.nats_cluster import (
    READY_S,
    NatsCluster,
    ReplicatedServer,
    cluster_status,
    replicated_servers,
    restarting,
    wait_for_primary,
)
from shards import kill_worker
from wire import Client, stats_of

from beanstalkd_py.binlog.layout import SCHEDULES
from beanstalkd_py.replication.log import Log, LogOptions, Record
from beanstalkd_py.replication.target import parse_target
from beanstalkd_py.server.process.launch import WORKER_MODULE
from beanstalkd_py.server.replicator.replicator_supervisor import SAVE_LIMIT_S
from beanstalkd_py.server.schedules.progress_file import Progress, load_progress, save_progress

CONFIG = '[schedule.second]\ncron = "* * * * * *"\ntube = "ticks"\nbody = "x"\ncatch-up = "all"\n'
SOON_S = 20.0
LONG_S = 120.0
"""For MISSED ticks, on a busy machine."""
MISSED = 10_000
JOBS = 5_000
MOST_WRITES = 100
"""To all keys of a queue, within a test."""
pytestmark = pytest.mark.costly


def operator_of(server: ReplicatedServer) -> Operator:
    return Operator(f"127.0.0.1:{server.port}")


def patterns(server: ReplicatedServer) -> list[str]:
    rows = operator_of(server).do("policy", "show", "--json").json
    return [row["pattern"] for row in rows]


@pytest.fixture
def pair(
    request: pytest.FixtureRequest, nats: NatsCluster, memory: Path
) -> Iterator[tuple[str, list[ReplicatedServer]]]:
    name = request.node.originalname[-32:]
    config = memory / "schedules.toml"
    config.write_text(CONFIG)
    with (
        replicated_servers(nats, name, memory, 2, "--config", str(config)) as servers,
        restarting(servers),
    ):
        yield f"{nats.url}/{name}", servers


def test_policies_that_were_set_online_hold(pair: tuple[str, list[ReplicatedServer]]) -> None:
    target, (first, second) = pair
    operator_of(first).do("policy", "set", "small.*", "max-jobs=1")
    operator_of(first).do("policy", "set", "gone.*", "max-jobs=1")
    operator_of(first).do("policy", "unset", "gone.*")
    first.kill()
    assert wait_for_primary([second]) is second
    assert patterns(second) == ["small.*"]
    with second.running.connect() as client:
        client.ask(b"use small.tube\r\n")
        assert client.put() > 0
        assert not client.ask(b"put 0 0 10 1\r\nx\r\n").startswith(b"INSERTED")
    operator_of(second).do("policy", "unset", "small.*")
    operator_of(second).do("policy", "set", "other", "max-jobs=2")
    first.start()
    first.wait_until("standing by")
    cluster_status(target)
    Operator("").do("cluster", "failover", target)
    assert wait_for_primary([first]) is first
    assert patterns(first) == ["other"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_new_primary_applies_policies_before_it_serves(
    nats: NatsCluster, memory: Path, workers: int
) -> None:
    """The workers of a standby run before it has the online policies, as do restarted ones.

    One of the policies exempts jobs from that of the file, which would delete them all at once.
    """
    config = memory / "expires.toml"
    config.write_text('[tube."kept"]\nexpires = "1s"\n')
    options = "--config", str(config), "--workers", str(workers)
    with replicated_servers(nats, f"exempt-{workers}", memory, 2, *options) as (first, second):
        operator_of(first).do("policy", "set", "kept")
        with first.running.connect() as client:
            client.ask(b"use kept\r\n")
            client.send(b"put 0 0 10 1\r\nx\r\n" * JOBS)
            for _ in range(JOBS):
                assert client.reply(READY_S).startswith(b"INSERTED")
        time.sleep(2)
        first.kill()
        assert wait_for_primary([second]) is second
        with second.running.connect() as client:
            assert int(client.stats(b"stats-tube kept")["current-jobs-ready"]) == JOBS
        if workers == 1:
            return  # a single worker is not restarted
        for pid in worker_pids_of(second):
            kill_worker(second.running, pid)
        with second.running.connect() as client:
            assert eventually(lambda: is_listed(client), READY_S)
            assert int(client.stats(b"stats-tube kept")["current-jobs-ready"]) == JOBS


def worker_pids_of(server: ReplicatedServer) -> list[int]:
    """Return the workers, without the replicator."""
    found = children(server.running.pid)
    return [pid for pid in found if WORKER_MODULE.encode() in command_line(pid)]


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def is_listed(client: Client) -> bool:
    """Return whether the worker of the tube answers."""
    return client.ask(b"stats-tube kept\r\n", READY_S).startswith(b"OK")


@pytest.mark.parametrize("failure", ["cut", "quorum"])
def test_a_policy_that_cannot_be_stored_is_reported(
    nats: NatsCluster, memory: Path, failure: str
) -> None:
    """It applies to the clients of this server, as the message suggests."""
    with replicated_servers(nats, f"unstored-{failure}", memory, 1, "--replicate-lease", "60s") as (
        server,
    ):
        if failure == "cut":
            server.relays.cut()
        else:
            for one in nats.servers[1:]:
                one.kill()
        begun = time.monotonic()
        result = operator_of(server).try_("policy", "set", "a", "max-jobs=1")
        assert SAVE_LIMIT_S - 1 < time.monotonic() - begun < SAVE_LIMIT_S + 5
        assert result.status == 1
        (line,) = result.errors
        assert "whether it holds after a failover is unknown" in line
        if failure == "cut":
            server.relays.mend()
        else:
            for one in nats.servers[1:]:
                one.start()
        assert patterns(server) == ["a"]
        with server.running.connect() as client:
            client.ask(b"use a\r\n")
            client.send(b"put 0 0 10 1\r\nx\r\n" * 2)
            assert client.reply(READY_S).startswith(b"INSERTED")
            assert client.reply(READY_S) == b"OUT_OF_MEMORY\r\n"


def with_missed_ticks(memory: Path, name: str) -> tuple[int, list[str]]:
    """Create the first folder of a queue, with an old progress; return that, and options."""
    config = memory / f"{name}.toml"
    config.write_text(CONFIG)
    begin = int(time.time()) - MISSED
    folder = memory / f"{name}-0"
    folder.mkdir()
    save_progress(str(folder), {"second": Progress("* * * * * *", "UTC", begin, begin)})
    return begin, ["--config", str(config)]


def test_a_stop_stores_the_progress(nats: NatsCluster, memory: Path) -> None:
    """In spite of the pauses between writes."""
    begin, options = with_missed_ticks(memory, "stopped")
    with replicated_servers(nats, "stopped", memory, 1, *options) as (server,):

        def last() -> int:
            return load_progress(str(server.folder))["second"].last

        # Each tick of these would be a write.
        assert eventually(lambda: last() > begin + 2 * MOST_WRITES, SOON_S)
        server.stop()
        assert last() < begin + MISSED
        record = asyncio.run(stored_progress(f"{nats.url}/stopped"))
        assert record.value["text"] == (server.folder / SCHEDULES).read_text()
        assert record.revision < MOST_WRITES


@pytest.mark.timeout(LONG_S + 60)
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_missed_ticks_are_put_once_over_a_failover(
    nats: NatsCluster, memory: Path, end: str
) -> None:
    """Also those that a killed primary has put since its last write of the progress to NATS.

    Their jobs have ended. The first server begins the queue with a progress of long ago.
    """
    name = f"missed-{end}"
    begin, options = with_missed_ticks(memory, name)
    with replicated_servers(nats, name, memory, 2, *options) as (first, second):
        with first.running.connect() as client:
            ended = int(client.ask(b"truncate ticks\r\n").split()[1])
        assert 0 < ended < MISSED / 2
        if end == "stop":
            first.stop()
        else:
            first.kill()
        assert wait_for_primary([second]) is second
        assert eventually(lambda: ticks(second)[0] >= time.time() - 2, LONG_S)
        last, left = settled(second)
        assert ended + left == last - begin


async def stored_progress(target: str) -> Record:
    log = await Log.connect(parse_target(target), LogOptions())
    try:
        record = await log.get(SCHEDULES)
        assert record is not None
        return record
    finally:
        await log.close()


def ticks(server: ReplicatedServer) -> tuple[int, int]:
    """Return the last tick that was put, and the number of jobs."""
    (row,) = operator_of(server).do("schedule", "list", "--json").json
    with server.running.connect() as client:
        reply = client.ask(b"stats-tube ticks\r\n")
    # The tube is gone until the next tick if its jobs have ended.
    is_gone = reply == b"NOT_FOUND\r\n"
    return row["last-put"], 0 if is_gone else int(stats_of(reply)["current-jobs-ready"])


def settled(server: ReplicatedServer) -> tuple[int, int]:
    """Return both between two ticks."""
    while True:
        found = ticks(server)
        if ticks(server) == found:
            return found


def test_a_schedule_goes_on_after_failovers(pair: tuple[str, list[ReplicatedServer]]) -> None:
    """Each tick from the first one on has one job, as after kills of a single server."""
    target, (first, second) = pair

    assert eventually(lambda: (first.folder / "schedules.json").exists(), SOON_S)
    time.sleep(2)
    begin, count = ticks(first)
    first.kill()
    assert wait_for_primary([second]) is second
    assert eventually(lambda: ticks(second)[0] >= time.time() - 2, SOON_S)
    first.start()
    first.wait_until("standing by")
    cluster_status(target)
    Operator("").do("cluster", "failover", target)
    assert wait_for_primary([first]) is first
    assert eventually(lambda: ticks(first)[0] >= time.time() - 2, SOON_S)
    end, total = settled(first)
    assert total - count == end - begin
