"""Machines in namespaces whose packets are dropped; the clients' logs show what was lost."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from replication.servers.client_log import LoggingClient, check, drain
from replication.servers.namespaces import HUB_HOST, Machine, network
from replication.servers.nats_cluster import (
    LEASE_S,
    READY_LINE,
    READY_S,
    nats_program,
    restarting,
)
from servers import Server, our_command

ROUNDS = int(os.environ.get("REPLICATION_ROUNDS", "5"))
NATS_PORT, ROUTE_PORT, PORT = 4222, 6222, 11300
CLIENTS = 4
FAILOVER_S = LEASE_S + 20.0
"""Also NATS elects leaders when a partition ends."""


class OneServer:
    """A server on a machine of its own, which is started again when it ends."""

    def __init__(self, machine: Machine, target: str, folder: Path) -> None:
        self.machine = machine
        folder.mkdir()
        address = f"{machine.host}:{PORT}"
        self._command = machine.command(
            *our_command(),
            *("-l", "0.0.0.0", "-p", str(PORT), "-b", str(folder), "-s", "65536"),
            *("--replicate", target, "--replicate-address", address),
            *("--replicate-lease", f"{LEASE_S}s", "--control", str(folder / "control.sock")),
        )
        self.logs: list[str] = []
        self.process = Server(self._command, PORT, {})

    def restart_if_ended(self) -> None:
        if self.process.exit_status is not None:
            self.process.kill()
            self.logs.append(self.process.stderr())
            self.process = Server(self._command, PORT, {})

    def kill(self) -> None:
        self.process.kill()

    def is_primary(self) -> bool:
        return READY_LINE in self.process.stderr() and self.process.exit_status is None


def wait_for_primary(
    servers: Sequence[OneServer], other_than: OneServer | None = None
) -> OneServer:
    end = time.monotonic() + READY_S
    while time.monotonic() < end:
        for server in servers:
            if server is not other_than and server.is_primary():
                return server
        time.sleep(0.02)
    raise AssertionError("\n".join(server.process.stderr()[-2000:] for server in servers))


@contextlib.contextmanager
def nats_servers(machines: Sequence[Machine], folder: Path) -> Iterator[str]:
    """Run a nats-server on each machine; yield their URL."""
    routes = ", ".join(f"nats://{one.host}:{ROUTE_PORT}" for one in machines)
    with contextlib.ExitStack() as stack:
        for number, machine in enumerate(machines):
            config = folder / f"nats-{number}.conf"
            config.write_text(
                f"server_name: n{number}\nlisten: 0.0.0.0:{NATS_PORT}\nping_interval: 1s\n"
                f'jetstream {{ store_dir: "{folder}/js-{number}", sync_interval: always }}\n'
                f"cluster {{ name: test, listen: 0.0.0.0:{ROUTE_PORT}, routes: [{routes}] }}\n"
            )
            log = stack.enter_context((folder / f"nats-{number}.log").open("wb"))
            words = machine.command(
                "setpriv", "--pdeathsig", "TERM", nats_program(), "-c", str(config)
            )
            process = subprocess.Popen(words, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
        end = time.monotonic() + READY_S
        logs = [folder / f"nats-{number}.log" for number in range(len(machines))]
        while not any("metadata leader" in one.read_text() for one in logs):
            assert time.monotonic() < end, logs[0].read_text()
            time.sleep(0.05)
        yield "nats://" + ",".join(f"{one.host}:{NATS_PORT}" for one in machines)


Partition = Callable[[list[OneServer], list[Machine], random.Random], None]


def primary_from_all(servers: list[OneServer], nats: list[Machine], dice: random.Random) -> None:
    primary = wait_for_primary(servers)
    primary.machine.cut_off()
    wait_for_primary(servers, other_than=primary)
    time.sleep(dice.random())
    primary.machine.mend()


def primary_from_nats(servers: list[OneServer], nats: list[Machine], dice: random.Random) -> None:
    """Its clients reach it, and requests of NATS, but none of its packets reach NATS."""
    primary = wait_for_primary(servers)
    primary.machine.drop_to(*(one.host for one in nats))
    wait_for_primary(servers, other_than=primary)
    primary.machine.mend()


def standby_from_nats(servers: list[OneServer], nats: list[Machine], dice: random.Random) -> None:
    primary = wait_for_primary(servers)
    (standby,) = (one for one in servers if one is not primary)
    standby.machine.drop_to(*(one.host for one in nats))
    time.sleep(2 * LEASE_S * dice.random())
    standby.machine.mend()


def one_of_nats(servers: list[OneServer], nats: list[Machine], dice: random.Random) -> None:
    """One server of NATS does not reach the others, but our servers reach it."""
    one = dice.choice(nats)
    one.drop_to(*(other.host for other in nats if other is not one))
    time.sleep(2 * LEASE_S * dice.random())
    one.mend()


def clients_from_primary(
    servers: list[OneServer], nats: list[Machine], dice: random.Random
) -> None:
    primary = wait_for_primary(servers)
    primary.machine.drop_to(HUB_HOST)
    time.sleep(LEASE_S * dice.random())
    primary.machine.mend()


PARTITIONS: list[Partition] = [
    primary_from_all,
    primary_from_nats,
    standby_from_nats,
    one_of_nats,
    clients_from_primary,
]


@pytest.mark.slow
@pytest.mark.timeout(300 + 60 * ROUNDS)
def test_no_acknowledged_job_is_lost_by_partitions(tmp_path: Path) -> None:
    dice = random.Random(f"partitions {ROUNDS}")
    with network(5) as machines, contextlib.ExitStack() as stack:
        nats, stopped = machines[2:], threading.Event()
        target = f"{stack.enter_context(nats_servers(nats, tmp_path))}/jobs"
        servers = [OneServer(machine, target, tmp_path / machine.name) for machine in machines[:2]]
        for server in servers:
            stack.callback(server.kill)
        stack.enter_context(restarting(servers))
        addresses = [(one.host, PORT) for one in machines[:2]]
        clients = [
            LoggingClient(f"client-{number}", addresses[:: 1 - 2 * (number % 2)], stopped)
            for number in range(CLIENTS)
        ]
        wait_for_primary(servers)
        threads = [threading.Thread(target=one.run, daemon=True) for one in clients]
        for thread in threads:
            thread.start()
        try:
            for number in range(ROUNDS):
                time.sleep(dice.random())
                partition = PARTITIONS[number % len(PARTITIONS)]
                began, before = time.monotonic(), sum(one.replies for one in clients)
                partition(servers, nats, dice)
                end = time.monotonic() + FAILOVER_S
                while sum(one.replies for one in clients) <= before + 50:
                    text = "\n".join(one.process.stderr()[-2000:] for one in servers)
                    assert time.monotonic() < end, f"{partition.__name__}: {text}"
                    time.sleep(0.05)
                print(f"round {number}: {partition.__name__}: {time.monotonic() - began:.1f} s")
        finally:
            stopped.set()
            for thread in threads:
                thread.join(60)
        assert all(not thread.is_alive() for thread in threads)
        assert [client.failure for client in clients if client.failure is not None] == []
        left = drain(PORT, wait_for_primary(servers).machine.host)
        check(clients, left)
        print(f"{sum(len(one.jobs) for one in clients)} jobs, {left.total()} left")
