"""Heads of tubes in shared memory: what they save, and that readers never see a mixture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from core.workers.cluster import Cluster, total
from core.workers.sanitized_threads import run_threads

from beanstalkd_py.core._core import lib


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(2) as made:
        yield made


def test_a_job_at_home_costs_no_message(cluster: Cluster) -> None:
    here, there = cluster.tube_on(0), cluster.tube_on(1)
    putter, client = cluster.client(1), cluster.client(0)
    client.ask(b"watch %b\r\nwatch %b\r\n" % (here, there))
    jobs = [putter.put(tube=tube) for tube in (here, there, here)]
    before = total(cluster, "peer_bytes_out")
    assert client.reserve() == jobs[0]
    assert total(cluster, "peer_bytes_out") == before
    assert [client.reserve(), client.reserve()] == jobs[1:]  # the older one is at the other shard


def test_a_poll_of_empty_tubes_costs_no_message(cluster: Cluster) -> None:
    client = cluster.client(0)
    client.ask(b"watch %b\r\nwatch %b\r\n" % (cluster.tube_on(0), cluster.tube_on(1)))
    before = total(cluster, "peer_bytes_out")
    assert client.reserve() is None
    assert total(cluster, "peer_bytes_out") == before


def test_a_poll_that_may_hold_a_job_elsewhere_asks_whether_its_deadline_is_soon(
    cluster: Cluster,
) -> None:
    there = cluster.tube_on(1)
    client = cluster.client(0)
    client.ask(b"watch %b\r\n" % there)
    job = client.put(ttr=1, tube=there)
    assert client.reserve() == job
    assert client.ask(b"reserve-with-timeout 0\r\n") == b"DEADLINE_SOON\r\n"
    client.do(b"delete %d" % job, b"DELETED")
    assert client.reserve() is None


@pytest.mark.parametrize("priorities", [(5, 4), (4, 5), (5, 5)])
def test_priority_comes_before_nearness(cluster: Cluster, priorities: tuple[int, int]) -> None:
    here, there = cluster.tube_on(0), cluster.tube_on(1)
    client = cluster.client(0)
    client.ask(b"watch %b\r\nwatch %b\r\n" % (here, there))
    jobs = [
        client.put(pri=pri, tube=tube) for pri, tube in zip(priorities, (here, there), strict=True)
    ]
    best = jobs[0] if priorities[0] <= priorities[1] else jobs[1]
    assert client.reserve() == best


def test_a_pause_hides_a_head(cluster: Cluster) -> None:
    there = cluster.tube_on(1)
    client = cluster.client(0)
    client.ask(b"watch %b\r\n" % there)
    job = client.put(tube=there)
    client.do(b"pause-tube %b 100" % there, b"PAUSED")
    assert client.reserve() is None
    client.do(b"pause-tube %b 0" % there, b"PAUSED")
    assert client.reserve() == job


def test_more_tubes_than_slots(cluster: Cluster) -> None:
    """Those without a slot are asked for their heads; freed slots are used again."""
    slots = lib.BS_PUBLISHED_HEADS
    tubes = [cluster.tube_on(1)]
    for number in range(1, slots + 10):
        tubes.append(b"%b-%d" % (tubes[0], number))
    watcher, client = cluster.client(0), cluster.client(0)
    watcher.ask(b"".join(b"watch %b\r\n" % tube for tube in tubes))
    client.ask(b"watch %b\r\nwatch %b\r\n" % (tubes[0], tubes[-1]))
    job = client.put(tube=tubes[-1])
    assert client.reserve() == job
    watcher.close()
    others = [cluster.client(0) for _ in range(2)]
    for other in others:
        other.ask(b"".join(b"watch %b\r\n" % tube for tube in tubes[:100]))
    job = client.put(tube=tubes[0])
    assert others[1].reserve() == job


def test_a_worker_that_dies_leaves_no_head(cluster: Cluster) -> None:
    there = cluster.tube_on(1)
    client = cluster.client(0)
    client.ask(b"watch %b\r\n" % there)
    client.put(tube=there)
    (head,) = (head for head in cluster.shared.head[1] if head.id)
    head.sequence += 1  # it dies while it writes
    cluster.kill(1)
    cluster.start(1)
    cluster.settle()
    assert head.sequence % 2 == 0
    assert client.reserve() is None
    job = client.put(tube=there)
    assert client.reserve() == job


def test_readers_never_see_half_of_a_write(tmp_path: Path) -> None:
    """Two threads read what a third writes, with ThreadSanitizer."""
    run_threads(tmp_path, "published_heads.c", "queue/published_heads.c")
