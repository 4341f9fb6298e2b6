"""Each server of a replicated queue keeps a history of its own, from its copy of the binlog."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
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
from wire import Client

from beanstalkd_py.history.message import UNIQ_KEY
from beanstalkd_py.history.reader import StoreReader
from beanstalkd_py.replication.cluster_status import STALE_S
from beanstalkd_py.server.replicator.process import REPORT_S

SOON_S = 20.0
TUBES = (b"a", b"b", b"c")


def history_of(server: ReplicatedServer) -> Path:
    return server.folder.with_name(f"{server.folder.name}-history")


def with_histories(folder: Path, name: str) -> Callable[[int], Sequence[str]]:
    return lambda number: ("--history", str(folder / f"{name}-{number}-history"))


def archived(server: ReplicatedServer) -> dict[int, str]:
    """Return the UNIQ_KEY of each archived job. No job may be there twice."""
    if not (history_of(server) / "commitlog").is_dir():
        return {}
    with StoreReader.open(history_of(server)) as store:
        messages = [one.properties for one in store.scan()]
    found = {int(one["KEYS"]): one[UNIQ_KEY] for one in messages}
    assert len(found) == len(messages), "a job was archived twice"
    return found


def finish(client: Client, count: int, size: int = 100) -> set[int]:
    """Put jobs, delete them in different ways, and return them."""
    jobs = set()
    for number in range(count):
        client.ask(b"use %b\r\n" % TUBES[number % len(TUBES)])
        client.ask(b"watch %b\r\n" % TUBES[number % len(TUBES)])
        job = client.put(b"x" * size)
        if number % 3:
            assert client.reserve() == job
        if number % 3 == 2:
            client.ask(b"bury %d 1\r\n" % job)
        assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
        jobs.add(job)
    return jobs


@pytest.fixture(params=["1", "2"])
def pair(
    request: pytest.FixtureRequest, nats: NatsCluster, memory: Path
) -> Iterator[tuple[str, list[ReplicatedServer]]]:
    """Two servers, with one or two workers, and their target."""
    name = f"history-{request.node.originalname}-{request.param}"[-32:]
    options = ("--workers", request.param, "-s", "65536")
    each = with_histories(memory, name)
    with (
        replicated_servers(nats, name, memory, 2, *options, each=each) as servers,
        restarting(servers),
    ):
        yield f"{nats.url}/{name}", servers


def test_histories_agree_over_failovers(pair: tuple[str, list[ReplicatedServer]]) -> None:
    target, servers = pair
    first, second = servers
    with first.running.connect() as client:
        open_job = client.put(b"open", delay=1000)
        done = finish(client, 60, size=3000)

    def agree() -> bool:
        found = [archived(server) for server in servers]
        return set(found[0]) == done and found[0] == found[1]

    assert eventually(agree, SOON_S)
    second.kill()
    with first.running.connect() as client:
        done |= finish(client, 5)
    second.start()
    assert eventually(agree, SOON_S)
    first.kill()
    assert wait_for_primary([second]) is second
    with second.running.connect() as client:
        done |= finish(client, 40, size=3000)
        client.ask(b"delete %d\r\n" % open_job)
        done.add(open_job)
    first.start()
    first.wait_until("standing by")
    assert eventually(agree, SOON_S)
    cluster_status(target)
    Operator("").do("cluster", "failover", target)
    assert wait_for_primary([first]) is first
    with first.running.connect() as client:
        done |= finish(client, 10)
    assert eventually(agree, SOON_S)
    for server in servers:
        assert eventually(lambda one=server: not list(one.folder.rglob("*.done")), SOON_S)


def test_a_server_that_was_away_reports_what_its_history_lacks(
    pair: tuple[str, list[ReplicatedServer]],
) -> None:
    _, servers = pair
    first, second = servers
    with first.running.connect() as client:
        before = finish(client, 10)
        assert eventually(lambda: set(archived(second)) == before, SOON_S)
        second.kill()
        time.sleep(STALE_S + REPORT_S)  # the primary keeps messages for standbys that have run
        finish(client, 120, size=3000)
        second.start()
        second.wait_until("its history lacks the jobs that ended there")
        after = finish(client, 10)
    assert eventually(lambda: after <= set(archived(second)), SOON_S)
    assert before <= set(archived(second))
