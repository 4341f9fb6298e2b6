"""Commands of several workers at once: atomicity, and clients that leave in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from core.workers.cluster import Cluster, total

CLAIM_BYTES = 64
"""A CLAIM frame, and the frame of its response."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(2) as made:
        yield made


def test_reserves_in_one_piece_have_a_reply_each(cluster: Cluster) -> None:
    """The next reserve begins before this worker receives the end of its own claim."""
    here, there = cluster.tube_on(0), cluster.tube_on(1)
    client = cluster.client(0)
    client.ask(b"watch %b\r\nwatch %b\r\n" % (here, there))
    jobs = [client.put(tube=tube) for tube in (here, here, there, here)]
    replies = client.ask(b"reserve\r\n" * 4 + b"reserve-with-timeout 0\r\n")
    assert replies == b"".join(b"RESERVED %d 1\r\nx\r\n" % job for job in jobs) + b"TIMED_OUT\r\n"


def test_a_client_that_leaves_during_a_multi_shard_reserve_keeps_nothing(cluster: Cluster) -> None:
    """The owner of a job put very long ago is not known, so every worker is asked."""
    there = cluster.tube_on(1)
    other = cluster.client(1)
    job = other.put(tube=there)
    cluster.shared.owner[job] = 0
    client = cluster.client(0)
    client.core.feed(client.session, b"reserve-job %d\r\n" % job)
    client.close()
    assert other.job(job)["state"] == "ready"
    assert total(cluster, "reserved") == 0


def test_a_job_whose_owner_is_not_known(cluster: Cluster) -> None:
    there = cluster.tube_on(1)
    job = cluster.client(1).put(tube=there)
    cluster.shared.owner[job] = 0
    client = cluster.client(0)
    script = b"peek %d\r\nreserve-job %d\r\nrelease %d 0 0\r\ndelete %d\r\ndelete %d\r\n"
    found, reserved = b"FOUND %d 1\r\nx\r\n" % job, b"RESERVED %d 1\r\nx\r\n" % job
    replies = found + reserved + b"RELEASED\r\nDELETED\r\nNOT_FOUND\r\n"
    assert client.ask(script % ((job,) * 5)) == replies


def test_tubes_are_created_in_the_order_of_commands(cluster: Cluster) -> None:
    client = cluster.client(0)
    names = [cluster.tube_on(1, n) for n in range(3)]
    client.ask(b"".join(b"watch %b\r\n" % name for name in names))
    assert client.names(b"list-tubes") == ["default", *[name.decode() for name in names]]


def test_a_tube_is_there_from_the_watch_on(cluster: Cluster) -> None:
    there = cluster.tube_on(1)
    client = cluster.client(0)
    script = b"pause-tube %b 9\r\nwatch %b\r\npause-tube %b 9\r\n" % (there, there, there)
    assert client.ask(script) == b"NOT_FOUND\r\nWATCHING 2\r\nPAUSED\r\n"


def test_a_command_for_a_worker_that_is_replaced_is_not_carried_out(cluster: Cluster) -> None:
    """The socket to the new worker comes while commands for the old one have not left."""
    there = cluster.tube_on(1)
    client = cluster.client(0)
    client.ask(b"use %b\r\n" % there)
    client.core.feed(client.session, b"put 0 0 9 1\r\nx\r\n")
    cluster.kill(1)
    cluster.start(1)
    cluster.settle()
    assert client.read() == b"INTERNAL_ERROR\r\n"
    assert client.ask(b"peek-ready\r\n") == b"NOT_FOUND\r\n"


@pytest.mark.parametrize("priorities", [[0], [0, 5], range(100)], ids=["one", "two", "all"])
def test_clients_that_reserve_together_do_not_compete_for_one_job(
    cluster: Cluster, priorities: Sequence[int]
) -> None:
    """Each claims at most a few times, whatever their number."""
    tubes = [cluster.tube_on(shard) for shard in (0, 1)]
    putter = cluster.client(0)
    clients = [cluster.client(number % 2) for number in range(100)]
    for number in range(len(clients)):
        putter.put(pri=priorities[number % len(priorities)], tube=tubes[number % 2])
    for client in clients:
        client.ask(b"watch %b\r\nwatch %b\r\nignore default\r\n" % tuple(tubes))
    for client in clients:
        client.core.feed(client.session, b"reserve-with-timeout 0\r\n")
    before = total(cluster, "peer_bytes_out")
    cluster.settle()
    sent = total(cluster, "peer_bytes_out") - before
    given = [client.read() for client in clients]
    assert all(reply.startswith(b"RESERVED ") for reply in given)
    assert len(set(given)) == len(clients)
    print(sent)
    assert sent <= 4 * CLAIM_BYTES * len(clients)
