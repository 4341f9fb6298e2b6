"""Reserves while a worker neither answers nor ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from core.workers.cluster import Cluster, ClusterClient

HUNG, OTHER = 1, 2
LIMIT_S = 1.0
"""A worker that does not answer for so long is left out."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as made:
        yield made


def reply_of(
    cluster: Cluster, client: ClusterClient, meanwhile: Callable[[], None] = lambda: None
) -> bytes:
    """Run all workers but the hung one until the client has a reply, or for twice the limit."""
    end = time.monotonic() + 2 * LIMIT_S
    while time.monotonic() < end:
        meanwhile()
        for shard in (0, OTHER):
            cluster.turn(shard)
        if reply := client.read():
            return reply
        time.sleep(0.005)
    return b""


def start(client: ClusterClient, command: bytes) -> None:
    client.core.feed(client.session, command)


def test_a_job_that_a_hung_worker_has_published_holds_up_one_reserve(cluster: Cluster) -> None:
    hung, other = cluster.tube_on(HUNG), cluster.tube_on(OTHER)
    clients = [cluster.client(0) for _ in range(2)]
    for client in clients:
        client.ask(b"watch %b\r\nwatch %b\r\n" % (hung, other))
    putter = cluster.client(0)
    best = putter.put(pri=0, tube=hung)
    second = putter.put(pri=10, tube=other)
    start(clients[0], b"reserve-with-timeout 5\r\n")
    assert reply_of(cluster, clients[0]) == b""  # the hung worker has been asked to reserve
    start(clients[1], b"reserve-with-timeout 5\r\n")
    assert reply_of(cluster, clients[1]).startswith(b"RESERVED %d " % second)
    cluster.settle()
    assert clients[0].read().startswith(b"RESERVED %d " % best)
    assert clients[1].reserve() is None


def test_the_time_limit_of_one_client_does_not_depend_on_others(cluster: Cluster) -> None:
    hung, others = cluster.tube_on(HUNG), [cluster.tube_on(OTHER, number) for number in range(2)]
    putter = cluster.client(0)
    # Once asked about: it holds a job at a worker that answers.
    active = cluster.client(0)
    active.ask(b"watch %b\r\nwatch %b\r\n" % (hung, others[1]))
    job = putter.put(tube=others[1])
    assert active.reserve() == job
    assert active.reserve() is None
    # It holds a job at the worker that hangs from here on, so its next reserve asks that one.
    quiet = cluster.client(0)
    quiet.ask(b"watch %b\r\nwatch %b\r\n" % (hung, others[0]))
    job = putter.put(tube=hung)
    assert quiet.reserve() == job
    for _ in range(1000):
        putter.put(tube=others[1])
    start(quiet, b"reserve-with-timeout 0\r\n")

    start(active, b"reserve-with-timeout 0\r\n")

    def reserve_again() -> None:
        if active.read():
            start(active, b"reserve-with-timeout 0\r\n")

    assert reply_of(cluster, quiet, reserve_again) == b"TIMED_OUT\r\n"
