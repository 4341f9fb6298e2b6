"""Each server of a replicated queue keeps a history of its own, from its copy of the binlog."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
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
pytestmark = pytest.mark.costly
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
    with two_servers(nats, memory, name, "--workers", request.param) as servers:
        yield f"{nats.url}/{name}", servers


@contextlib.contextmanager
def two_servers(
    nats: NatsCluster, memory: Path, name: str, *options: str
) -> Iterator[list[ReplicatedServer]]:
    each = with_histories(memory, name)
    with (
        replicated_servers(nats, name, memory, 2, "-s", "65536", *options, each=each) as servers,
        restarting(servers),
    ):
        yield servers


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


def archivers_of(server: ReplicatedServer) -> list[int]:
    pid = server.running.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        int(one) for one in children if b"archiver" in Path(f"/proc/{one}/cmdline").read_bytes()
    ]


def has_archiver(server: ReplicatedServer) -> bool:
    return len(archivers_of(server)) == 1


def test_nothing_is_missing_after_kills_under_load(
    pair: tuple[str, list[ReplicatedServer]],
) -> None:
    """The standby is killed while it archives, and so is its archiver, and then the primary."""
    _, servers = pair
    first, second = servers
    done: set[int] = set()
    ended = threading.Event()

    def load() -> None:
        with first.running.connect() as client:
            while not ended.is_set():
                done.update(finish(client, 30, size=3000))

    loading = threading.Thread(target=load)
    loading.start()
    try:
        for _ in range(3):
            assert eventually(lambda: has_archiver(second), SOON_S)
            time.sleep(1.5)
            second.kill()
            second.start()
            second.wait_until("standing by")
        assert eventually(lambda: has_archiver(second), SOON_S)
        os.kill(archivers_of(second)[0], signal.SIGKILL)
        second.wait_until("was killed by signal 9; restarting in 0.1 s, finished jobs wait")
        assert eventually(lambda: has_archiver(second), SOON_S)
    finally:
        ended.set()
        loading.join()
    before = archivers_of(second)
    assert eventually(lambda: set(archived(second)) == done, SOON_S)
    first.kill()
    assert wait_for_primary([second]) is second
    with second.running.connect() as client:
        done |= finish(client, 30, size=3000)
    first.start()
    first.wait_until("standing by")
    assert archivers_of(second) == before, "the primary takes over the archiver of the standby"
    assert eventually(lambda: set(archived(second)) == done, SOON_S)
    assert eventually(lambda: archived(first) == archived(second), SOON_S)
    assert "lacks the jobs" not in first.stderr() + second.stderr()


def test_an_archiver_that_fails_does_not_fill_the_disk_of_a_standby(
    nats: NatsCluster, memory: Path
) -> None:
    """It is started again and again, and its files wait up to the limit."""
    name = "history-backlog"
    options = ("--workers", "1", "-s", "65536", "--history-backlog", "1M")
    each = with_histories(memory, name)
    with replicated_servers(nats, name, memory, 1, *options, each=each) as servers:
        (first,) = servers
        second = ReplicatedServer(first.relays, name, memory / f"{name}-1", *options, *each(1))
        (history_of(second) / "commitlog").mkdir(parents=True)
        (history_of(second) / "archived").write_bytes(b"damaged")
        second.start()
        try:
            second.wait_until("restarting in 0.8 s")
            with first.running.connect() as client:
                finish(client, 800, size=3000)
            second.wait_until("backlog exceeds the limit")
            waiting = [path.stat().st_size for path in second.folder.glob("*.done")]
            assert 0 < sum(waiting) <= 2 << 20
        finally:
            second.kill()


def finish_while_away(client: Client, standby: ReplicatedServer) -> tuple[set[int], set[int]]:
    """Finish jobs before and while the standby does not run, the latter in files that are purged.

    It does not count as a standby any more.
    """
    before = finish(client, 10)
    open_jobs = {client.put(b"open", delay=1000) for _ in range(10)}
    assert eventually(lambda: set(archived(standby)) == before, SOON_S)
    standby.kill()
    time.sleep(STALE_S + REPORT_S)
    for job in open_jobs:
        client.ask(b"delete %d\r\n" % job)
    meanwhile = open_jobs | finish(client, 120, size=3000)
    time.sleep(2 * REPORT_S)  # the primary purges at these intervals
    standby.start()
    return before, meanwhile


def test_a_server_that_was_away_for_a_moment_misses_nothing(
    nats: NatsCluster, memory: Path
) -> None:
    """By default the primary keeps the messages for several minutes."""
    with two_servers(nats, memory, "history-kept", "--workers", "1") as (first, second):
        with first.running.connect() as client:
            before, meanwhile = finish_while_away(client, second)
        assert eventually(lambda: set(archived(second)) == before | meanwhile, SOON_S)
        assert archived(first) == archived(second)
        assert "lacks the jobs" not in second.stderr()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_server_that_was_away_reports_what_its_history_lacks(
    nats: NatsCluster, memory: Path, workers: str
) -> None:
    options = ("--workers", workers, "--replicate-keep", "1s")
    with (
        two_servers(nats, memory, f"history-away-{workers}", *options) as (first, second),
        first.running.connect() as client,
    ):
        before, _ = finish_while_away(client, second)
        second.wait_until("its history lacks the jobs that ended there")
        after = finish(client, 10)
        assert eventually(lambda: after <= set(archived(second)), SOON_S)
        assert before <= set(archived(second))
        finish(client, 60, size=3000)
        # Not even those of jobs that ended while the server was away.
        for server in (first, second):
            assert eventually(lambda one=server: not list(one.folder.rglob("*.done")), SOON_S)
