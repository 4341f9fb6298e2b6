"""Two shards claim a job for the same waiting client, which takes one: the other stays visible.

No reply may depend on such a job before it is taken or cancelled. Here all commands are sent before
any worker receives a message of another one, so every command meets a pending claim.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from core.workers.cluster import Cluster, ClusterClient, total
from wire import stats_of

SHARDS = 3

Reading = Callable[[bytes], bool]
"""Whether a reply says that the job is reserved."""


@pytest.fixture
def cluster() -> Cluster:
    with Cluster(SHARDS) as made:
        yield made


def reads(taken: bytes, left: bytes) -> Reading:
    def read(reply: bytes) -> bool:
        assert reply.startswith((taken, left)), reply
        return reply.startswith(taken)

    return read


def state_of_job(reply: bytes) -> bool:
    stats = stats_of(reply)
    assert (stats["state"], stats["reserves"]) in [("reserved", "1"), ("ready", "0")]
    return stats["state"] == "reserved"


def counts_of_tube(reply: bytes) -> bool:
    stats = stats_of(reply)
    counts = tuple(stats[f"current-jobs-{state}"] for state in ("urgent", "ready", "reserved"))
    assert counts in [("0", "0", "1"), ("1", "1", "0")]
    return counts[-1] == "1"


COMMANDS: dict[str, tuple[bytes, Reading]] = {
    "peek-ready": (b"peek-ready", reads(b"NOT_FOUND", b"FOUND")),
    "delete": (b"delete %(job)d", reads(b"NOT_FOUND", b"DELETED")),
    "reserve-job": (b"reserve-job %(job)d", reads(b"NOT_FOUND", b"RESERVED")),
    "stats-job": (b"stats-job %(job)d", state_of_job),
    "stats-tube": (b"stats-tube %(tube)b", counts_of_tube),
    "poll": (b"reserve-with-timeout 0", reads(b"TIMED_OUT", b"RESERVED")),
}


def waiting_for_both(cluster: Cluster, home: int, tubes: list[bytes]) -> ClusterClient:
    client = cluster.client(home)
    for tube in tubes:
        client.ask(b"watch %b\r\n" % tube)
    client.send(b"reserve\r\n")
    return client


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("home", range(SHARDS))
@pytest.mark.parametrize("asks", ["at its shard", "elsewhere", "about tubes of two shards"])
def test_a_question_about_a_claimed_job_waits_for_the_decision(
    cluster: Cluster, home: int, command: str, asks: str
) -> None:
    line, is_reserved = COMMANDS[command]
    tubes = [cluster.tube_on(0), cluster.tube_on(1)]
    client = waiting_for_both(cluster, home, tubes)
    askers = []
    for shard, tube in enumerate(tubes):
        asker = cluster.client((shard + 1) % SHARDS if asks == "elsewhere" else shard)
        asker.ask(b"use %b\r\nwatch %b\r\nignore default\r\n" % (tube, tube))
        if asks == "about tubes of two shards":
            asker.ask(b"watch %b\r\n" % cluster.tube_on(2, 1))
        askers.append(asker)
    for number, (asker, tube) in enumerate(zip(askers, tubes, strict=True), start=1):
        text = line % {b"job": number, b"tube": tube}
        asker.core.feed(asker.session, b"put 0 0 100 1\r\nx\r\n" + text + b"\r\n")
    cluster.settle()
    given = int(client.read().split()[1])
    for number, asker in enumerate(askers, start=1):
        inserted, _, reply = asker.read().partition(b"\r\n")
        assert inserted == b"INSERTED %d" % number
        assert is_reserved(reply) == (number == given)


def test_a_tube_is_paused_after_the_job_that_was_there_before(cluster: Cluster) -> None:
    tube = cluster.tube_on(0)
    client = waiting_for_both(cluster, 1, [tube, cluster.tube_on(1)])
    putter = cluster.client(0)
    pipeline = b"use %b\r\nput 0 0 9 1\r\nx\r\npause-tube %b 100\r\n" % (tube, tube)
    putter.core.feed(putter.session, pipeline)
    cluster.settle()
    assert putter.read().endswith(b"INSERTED 1\r\nPAUSED\r\n")
    assert client.read().startswith(b"RESERVED 1 ")


@pytest.mark.parametrize(
    ("priorities", "seconds"), [((5, 5, 5), 2), ((5, 3, 1), 3), ((1, 5, 3), 3)]
)
def test_the_next_waiter_gets_the_best_remaining_job(
    cluster: Cluster, priorities: tuple[int, ...], seconds: int
) -> None:
    """The first waiter gets the first job. Later jobs are handed out after the decision."""
    here = cluster.tube_on(0)
    client = waiting_for_both(cluster, 2, [here, cluster.tube_on(1)])
    second = cluster.client(0)
    second.ask(b"watch %b\r\nignore default\r\nreserve\r\n" % here)
    putter = cluster.client(0)
    jobs = [b"put %d 0 9 1\r\nx\r\n" % priority for priority in priorities]
    feed(putter, b"use %b\r\n" % here + b"".join(jobs))
    cluster.settle()
    assert client.read() == b"RESERVED 1 1\r\nx\r\n"
    assert second.read() == b"RESERVED %d 1\r\nx\r\n" % seconds
    left = ({2, 3} - {seconds}).pop()
    assert putter.ask(b"peek-ready\r\n").endswith(b"FOUND %d 1\r\nx\r\n" % left)


def test_jobs_of_a_tube_are_handed_out_in_order_if_claims_are_put_back(cluster: Cluster) -> None:
    """A waiter of one shard gets the job that was put back, not a later one."""
    here, there = cluster.tube_on(0), cluster.tube_on(1)
    both = waiting_for_both(cluster, 1, [here, there])
    behind = cluster.client(0)
    behind.ask(b"watch %b\r\nignore default\r\nreserve\r\n" % here)
    near, far = cluster.client(1), cluster.client(0)
    feed(near, b"use %b\r\nput 0 0 9 1\r\ny\r\n" % there)
    feed(far, b"use %b\r\n" % here + b"put 0 0 9 1\r\nx\r\n" * 3)
    cluster.settle()
    assert both.read() == b"RESERVED 1 1\r\ny\r\n"
    assert behind.read() == b"RESERVED 2 1\r\nx\r\n"


def test_an_undecided_claim_is_put_back(cluster: Cluster) -> None:
    """A hanging worker delays the others only briefly, and keeps no job for its own clients."""
    here = cluster.tube_on(0)
    stuck = [waiting_for_both(cluster, 1, [here, cluster.tube_on(1)]) for _ in range(3)]
    behind = cluster.client(0)
    behind.ask(b"watch %b\r\nignore default\r\nreserve\r\n" % here)
    far = cluster.client(0)
    feed(far, b"use %b\r\nput 0 0 1 1\r\nx\r\nstats-job 1\r\n" % here)
    end = time.monotonic() + 5
    while (reply := behind.read()) == b"" and time.monotonic() < end:
        cluster.turn(0)
    assert reply == b"RESERVED 1 1\r\nx\r\n"
    assert time.monotonic() < end - 4
    cluster.turn(0)
    assert stats_of(far.read().split(b"\r\n", 2)[2])["reserves"] == "1"
    # When it goes on, its clients still wait, and are served.
    cluster.settle()
    behind.ask(b"delete 1\r\n")
    job = far.put(tube=here)
    assert [client.read() for client in stuck].count(b"RESERVED %d 1\r\nx\r\n" % job) == 1


def test_a_reserve_during_a_claim_gets_the_job_that_is_put_back(cluster: Cluster) -> None:
    here, there = cluster.tube_on(0), cluster.tube_on(1)
    client = waiting_for_both(cluster, 1, [here, there])
    near, far, third = cluster.client(1), cluster.client(0), cluster.client(0)
    third.ask(b"watch %b\r\nignore default\r\n" % here)
    feed(near, b"use %b\r\nput 0 0 9 1\r\ny\r\n" % there)
    feed(far, b"use %b\r\n" % here + b"put 0 0 9 1\r\nx\r\n" * 2)
    feed(third, b"reserve\r\n")
    cluster.settle()
    assert client.read() == b"RESERVED 1 1\r\ny\r\n"
    assert third.read() == b"RESERVED 2 1\r\nx\r\n"


def test_a_client_that_leaves_puts_its_claim_back(cluster: Cluster) -> None:
    tube = cluster.tube_on(0)
    client = waiting_for_both(cluster, 1, [tube, cluster.tube_on(1)])
    putter = cluster.client(0)
    putter.core.feed(putter.session, b"use %b\r\nput 0 0 9 1\r\nx\r\ndelete 1\r\n" % tube)
    cluster.turn(0)
    client.core.end(client.session)
    cluster.settle()
    assert putter.read().endswith(b"INSERTED 1\r\nDELETED\r\n")


def test_a_worker_that_dies_has_put_back(cluster: Cluster) -> None:
    tube = cluster.tube_on(0)
    waiting_for_both(cluster, 1, [tube, cluster.tube_on(1)])
    putter = cluster.client(0)
    putter.core.feed(putter.session, b"use %b\r\nput 0 0 9 1\r\nx\r\nreserve-job 1\r\n" % tube)
    cluster.turn(0)
    assert putter.read().endswith(b"INSERTED 1\r\n")
    cluster.kill(1)
    cluster.settle()
    assert putter.read() == b"RESERVED 1 1\r\nx\r\n"
    assert total(cluster, "ready") == 0


def feed(client: ClusterClient, data: bytes) -> None:
    """Send the data before other workers receive any message about it."""
    client.core.feed(client.session, data)


def test_a_job_put_back_goes_to_the_next_waiter(cluster: Cluster) -> None:
    here, there = cluster.tube_on(0), cluster.tube_on(1)
    client = waiting_for_both(cluster, 1, [here, there])
    second = cluster.client(0)
    second.ask(b"watch %b\r\nignore default\r\nreserve\r\n" % here)
    near, far = cluster.client(1), cluster.client(0)
    feed(near, b"use %b\r\nput 0 0 9 1\r\ny\r\n" % there)
    feed(far, b"use %b\r\nput 0 0 9 1\r\nx\r\n" % here)
    cluster.settle()
    assert {client.read(), second.read()} == {b"RESERVED 1 1\r\ny\r\n", b"RESERVED 2 1\r\nx\r\n"}


@pytest.mark.parametrize("other", [0, 1])
def test_a_query_waits_for_all_earlier_claims(cluster: Cluster, other: int) -> None:
    """Two shards have claimed a job: one is taken, and the other is put back a little later."""
    here = [cluster.tube_on(0, number) for number in range(2)]
    there = [cluster.tube_on(1, number) for number in range(2)]
    clients = [
        waiting_for_both(cluster, 1 if number == other else 2, [here[number], there[number]])
        for number in range(2)
    ]
    far, near = cluster.client(0), cluster.client(1)
    far.ask(b"watch %b\r\nwatch %b\r\n" % tuple(here))
    put = b"use %b\r\nput 0 0 9 1\r\nx\r\n"
    feed(far, put % here[0] + put % here[1] + b"reserve-with-timeout 0\r\n")
    feed(near, b"use %b\r\nput 0 0 9 1\r\ny\r\n" % there[other])
    for shard in (0, 2, 2, 0, 0):
        cluster.turn(shard)
    assert far.read().endswith(b"INSERTED 2\r\n")
    cluster.settle()
    jobs = [1, 2]
    assert clients[1 - other].read() == b"RESERVED %d 1\r\nx\r\n" % jobs[1 - other]
    assert clients[other].read() == b"RESERVED 3 1\r\ny\r\n"
    assert far.read() == b"RESERVED %d 1\r\nx\r\n" % jobs[other]


@pytest.mark.parametrize(
    ("question", "answer"),
    [(b"stats-tube %b", b"current-jobs-reserved: 2"), (b"peek-ready", b"NOT_FOUND")],
)
def test_a_query_does_not_wait_for_later_claims(
    cluster: Cluster, question: bytes, answer: bytes
) -> None:
    """Later claims count as reserved, so queries are answered under any load."""
    here, there = cluster.tube_on(0), cluster.tube_on(1)
    waiting_for_both(cluster, 1, [here, there])
    waiting_for_both(cluster, 2, [here, there])
    asker, putter = cluster.client(0), cluster.client(0)
    question = question % here if b"%b" in question else question
    feed(asker, b"use %b\r\nput 0 0 9 1\r\nx\r\n" % here + question + b"\r\n")
    feed(putter, b"use %b\r\nput 0 0 9 1\r\nx\r\n" % here)
    for shard in (0, 1, 1, 0, 0):  # two messages for worker 1: counts and claims
        cluster.turn(shard)
    reply = asker.read()
    if b"stats" in question:  # this needs a barrier besides
        cluster.settle()
        reply += asker.read()
        assert b"ready: 0\n" in reply
        assert b"urgent: 0\n" in reply
    assert answer in reply
    cluster.settle()
    assert total(cluster, "reserved") == 2
