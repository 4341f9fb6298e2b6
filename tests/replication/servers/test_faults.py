"""Servers and nats-servers that fail under load; the clients' logs show what was lost."""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from preloading import build_library
from processes import eventually
from replication.servers.client_log import LoggingClient, check, drain
from replication.servers.nats_cluster import (
    LEASE_S,
    NatsCluster,
    ReplicatedServer,
    answers,
    cluster_status,
    memory_folder,
    nats_cluster,
    replicated_servers,
    restarting,
    wait_for_primary,
)
from servers import Server

ROUNDS = int(os.environ.get("REPLICATION_ROUNDS", "11"))
CLIENTS = 4
STEP = struct.Struct("q")
DAY_NS = 24 * 3600 * 10**9
COPY_S = 180.0
CAUGHT_UP = 10_000
"""Messages that a server may lack in its report of up to 5 s ago."""
CALM_S = float(os.environ.get("REPLICATION_CALM_S", "1"))
"""The longest pause before a fault."""
LIMIT_S = 600 + (40 + CALM_S) * ROUNDS
FAILOVER_S = LEASE_S + 12.0
"""With the end of a nats-server in the same round."""

Fault = Callable[[NatsCluster, list[ReplicatedServer], random.Random], None]


def wait_for_end(server: ReplicatedServer, process: Server) -> None:
    """Wait until a primary has noticed that it is none any more."""
    end = time.monotonic() + FAILOVER_S
    while process.exit_status is None:
        assert time.monotonic() < end, server.stderr()
        time.sleep(0.02)


def kill_primary(nats: NatsCluster, servers: list[ReplicatedServer], dice: random.Random) -> None:
    primary = wait_for_primary(servers)
    primary.kill()
    if dice.random() < 0.5:
        wait_for_primary([one for one in servers if one is not primary])
    primary.start()


def stop_primary(nats: NatsCluster, servers: list[ReplicatedServer], dice: random.Random) -> None:
    primary = wait_for_primary(servers)
    primary.stop()
    primary.start()


def suspend_primary(
    nats: NatsCluster, servers: list[ReplicatedServer], dice: random.Random
) -> None:
    """Suspend it for longer than its lease: when it continues, another server may be primary."""
    primary = wait_for_primary(servers)
    process = primary.running
    os.killpg(process.pid, signal.SIGSTOP)
    wait_for_primary([one for one in servers if one is not primary])
    time.sleep(dice.random())
    os.killpg(process.pid, signal.SIGCONT)
    wait_for_end(primary, process)


def kill_standby(nats: NatsCluster, servers: list[ReplicatedServer], dice: random.Random) -> None:
    primary = wait_for_primary(servers)
    for server in servers:
        if server is not primary:
            server.kill()
            time.sleep(dice.random())
            server.start()


def kill_nats(nats: NatsCluster, servers: list[ReplicatedServer], dice: random.Random) -> None:
    one = dice.choice(nats.servers)
    one.kill()
    time.sleep(2 * dice.random())
    one.start()


def kill_nats_and_primary(
    nats: NatsCluster, servers: list[ReplicatedServer], dice: random.Random
) -> None:
    one = dice.choice(nats.servers)
    one.kill()
    kill_primary(nats, servers, dice)
    one.start()


def suspend_nats(nats: NatsCluster, servers: list[ReplicatedServer], dice: random.Random) -> None:
    one = dice.choice(nats.servers)
    one.signal(signal.SIGSTOP)
    time.sleep(LEASE_S * dice.random())
    one.signal(signal.SIGCONT)


def cut_off_primary(
    nats: NatsCluster, servers: list[ReplicatedServer], dice: random.Random
) -> None:
    """Its appends of before arrive when another server is primary."""
    primary = wait_for_primary(servers)
    process = primary.running
    primary.relays.cut()
    wait_for_primary([one for one in servers if one is not primary])
    time.sleep(dice.random())
    primary.relays.mend()
    wait_for_end(primary, process)


def cut_off_standby(
    nats: NatsCluster, servers: list[ReplicatedServer], dice: random.Random
) -> None:
    primary = wait_for_primary(servers)
    for server in servers:
        if server is not primary:
            server.relays.cut()
            time.sleep(2 * LEASE_S * dice.random())
            server.relays.mend()


def lose_disk_of_primary(
    nats: NatsCluster, servers: list[ReplicatedServer], dice: random.Random
) -> None:
    primary = wait_for_primary(servers)
    primary.kill()
    shutil.rmtree(primary.folder)
    primary.folder.mkdir()
    begun = time.time()
    primary.start()
    # Until it has a copy again, because no server could take over if the other one failed, too.
    assert eventually(lambda: has_caught_up(primary, begun), COPY_S), primary.stderr()


def has_caught_up(server: ReplicatedServer, after: float) -> bool:
    """Return whether a standby has reported since then that it lacks few messages.

    Its copy may be complete before the other server has taken over, so it may be the primary, too.
    """
    if server.is_primary():
        return True
    servers = cluster_status(server.target)["servers"]
    (found,) = (one for one in servers if one["address"] == f"127.0.0.1:{server.port}")
    is_standby = found["time_s"] > after and not found["is_primary"]
    return is_standby and found["behind"] < CAUGHT_UP


def lose_disk_of_nats(
    nats: NatsCluster, servers: list[ReplicatedServer], dice: random.Random
) -> None:
    one = dice.choice(nats.servers)
    one.kill()
    shutil.rmtree(one.store)
    time.sleep(dice.random())
    one.start()
    time.sleep(LEASE_S)  # until it has its copies again, because the next round may need them


FAULTS: list[Fault] = [
    kill_primary,
    stop_primary,
    suspend_primary,
    kill_standby,
    kill_nats,
    kill_nats_and_primary,
    cut_off_primary,
    cut_off_standby,
    suspend_nats,
    lose_disk_of_primary,
    lose_disk_of_nats,
]

FAILOVERS: list[Fault] = [
    stop_primary,
    kill_primary,
    suspend_primary,
    cut_off_primary,
    kill_nats_and_primary,
    lose_disk_of_primary,
]
CHOSEN = FAILOVERS if "REPLICATION_FAILOVERS" in os.environ else FAULTS


def report(clients: Sequence[LoggingClient], servers: Sequence[ReplicatedServer]) -> str:
    """Return why no client continues."""
    doing = [f"{one.name}: {one.doing}, {one.failure!r}" for one in clients]
    logs = [one.stderr()[-3000:] for one in servers]
    return "\n".join([f"at {time.monotonic():.1f} no client continues", *doing, *logs])


@pytest.fixture
def memory() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


def run_rounds(
    nats: NatsCluster,
    servers: list[ReplicatedServer],
    faults: Sequence[Fault],
    dice: random.Random,
) -> None:
    """Let clients work while the faults happen in turn, and check their logs."""
    stopped = threading.Event()
    addresses = [("127.0.0.1", one.port) for one in servers]
    clients = [
        LoggingClient(f"client-{number}", addresses[:: 1 - 2 * (number % 2)], stopped)
        for number in range(CLIENTS)
    ]
    threads = [threading.Thread(target=one.run, daemon=True) for one in clients]
    for thread in threads:
        thread.start()
    try:
        for number in range(ROUNDS):
            time.sleep(CALM_S * dice.random())
            fault = faults[number % len(faults)]
            began, before = time.monotonic(), sum(one.replies for one in clients)
            fault(nats, servers, dice)
            primary = wait_for_primary(servers)
            answers(primary.port, b"stats\r\n")
            took = time.monotonic() - began
            print(f"round {number}: {fault.__name__}: {took:.1f} s")
            end = time.monotonic() + FAILOVER_S
            while sum(one.replies for one in clients) <= before:
                assert time.monotonic() < end, report(clients, servers)
                time.sleep(0.05)
    finally:
        stopped.set()
        for thread in threads:
            thread.join(60)
    assert all(not thread.is_alive() for thread in threads)
    for client in clients:
        assert client.failure is None, f"{client.failure!r}: {report(clients, servers)}"
    left = drain(wait_for_primary(servers).port, attempts=20)
    check(clients, left)
    continued = sum(one.continued for one in clients)
    count = sum(len(one.jobs) for one in clients)
    print(f"{count} jobs, {left.total()} left, {continued} continued after a planned failover")


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("workers", [1, 2])
def test_no_acknowledged_job_is_lost(memory: Path, workers: int) -> None:
    dice = random.Random(f"faults {workers} {ROUNDS}")
    options = ["--workers", str(workers), "-s", "65536"]
    if workers == 2:
        options += ["--replicate-timeout", "1s"]
    with (
        nats_cluster(memory) as nats,
        replicated_servers(nats, "faults", memory, 2, *options) as servers,
        restarting(servers),
    ):
        run_rounds(nats, servers, CHOSEN, dice)


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
def test_steps_of_the_wall_clocks_lose_nothing(memory: Path, tmp_path: Path) -> None:
    """The clocks of both servers are set forward and back by up to two days at any time."""
    dice = random.Random(f"clocks {ROUNDS}")
    library = build_library(Path(__file__).with_name("stepped_clock.c"), tmp_path)
    files = [tmp_path / f"step-{number}" for number in range(2)]
    for file in files:
        file.write_bytes(STEP.pack(0))

    def prefix(number: int) -> list[str]:
        return ["env", f"LD_PRELOAD={library}", f"CLOCK_STEP={files[number]}"]

    def step(file: Path, days: float) -> None:
        with file.open("r+b") as out:  # in place, because the processes have mapped it
            out.write(STEP.pack(int(days * DAY_NS)))

    def step_clocks(
        nats: NatsCluster, servers: list[ReplicatedServer], dice: random.Random
    ) -> None:
        for file in files:
            step(file, dice.uniform(-2, 2))
        time.sleep(dice.random())

    with (
        nats_cluster(memory) as nats,
        replicated_servers(nats, "clocks", memory, 2, "-s", "65536", prefix=prefix) as servers,
        restarting(servers),
    ):
        run_rounds(nats, servers, [step_clocks, kill_primary, step_clocks, stop_primary], dice)
        with wait_for_primary(servers).running.connect() as client:
            job = client.put()
            before = int(client.job_stats(job)["age"])
            for file in files:
                step(file, 9)
            assert before < 100, before
            assert int(client.job_stats(job)["age"]) > 6 * DAY_NS // 10**9, "the clocks do not step"
