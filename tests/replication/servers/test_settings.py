"""Tube policies that were set online and the progress of schedules, over failovers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.operator import Operator
from processes import eventually
from replication.servers.nats_cluster import (
    NatsCluster,
    ReplicatedServer,
    cluster_status,
    replicated_servers,
    restarting,
    wait_for_primary,
)

from beanstalkd_py.server.replicator.replicator_supervisor import SAVE_LIMIT_S

CONFIG = '[schedule.second]\ncron = "* * * * * *"\ntube = "ticks"\nbody = "x"\ncatch-up = "all"\n'
SOON_S = 20.0
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


def test_a_policy_that_cannot_be_stored_is_reported(nats: NatsCluster, memory: Path) -> None:
    with replicated_servers(
        nats, "unstored", memory, 1, "--replicate-lease", f"{SAVE_LIMIT_S + 20:.0f}s"
    ) as (server,):
        server.relays.cut()
        begun = time.monotonic()
        text = operator_of(server).fail(1, "policy", "set", "a", "max-jobs=1")
        assert "whether the change holds after a failover is unknown" in text
        assert SAVE_LIMIT_S - 1 < time.monotonic() - begun < SAVE_LIMIT_S + 5
        server.relays.mend()


def test_a_schedule_goes_on_after_failovers(pair: tuple[str, list[ReplicatedServer]]) -> None:
    """Each tick from the first one on has one job, as after kills of a single server."""
    target, (first, second) = pair

    def ticks(server: ReplicatedServer) -> tuple[int, int]:
        """Return the last tick that was put, and the number of jobs."""
        (row,) = operator_of(server).do("schedule", "list", "--json").json
        with server.running.connect() as client:
            return row["last-put"], int(client.stats(b"stats-tube ticks")["current-jobs-ready"])

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
    while True:
        end, total = ticks(first)
        if ticks(first) == (end, total):
            break
    assert total - count == end - begin
