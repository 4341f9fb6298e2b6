"""A client of several workers sees one server, for every command and any shard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from core.workers.cluster import Cluster, total
from wire import stats_of


@pytest.fixture(params=[2, 3, 4])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(request.param) as made:
        yield made


@pytest.fixture(params=[0, 1])
def near(request: pytest.FixtureRequest) -> int:
    """The shard of the tube the test uses: the client's home is 0."""
    return int(request.param)


def test_every_transition_of_a_job(cluster: Cluster, near: int) -> None:
    tube = cluster.tube_on(near)
    client = cluster.client()
    client.do(b"watch " + tube, b"WATCHING 2")
    client.do(b"ignore default", b"WATCHING 1")
    job = client.put(b"hello", tube=tube, pri=5)
    assert client.ask(b"peek %d\r\n" % job) == b"FOUND %d 5\r\nhello\r\n" % job
    assert client.ask(b"peek-ready\r\n") == b"FOUND %d 5\r\nhello\r\n" % job
    assert client.ask(b"reserve\r\n") == b"RESERVED %d 5\r\nhello\r\n" % job
    client.do(b"touch %d" % job, b"TOUCHED")
    client.do(b"release %d 7 100" % job, b"RELEASED")
    assert client.ask(b"peek-delayed\r\n") == b"FOUND %d 5\r\nhello\r\n" % job
    client.do(b"kick 10", b"KICKED 1")
    assert client.ask(b"reserve-job %d\r\n" % job) == b"RESERVED %d 5\r\nhello\r\n" % job
    client.do(b"bury %d 9" % job, b"BURIED")
    assert client.ask(b"peek-buried\r\n") == b"FOUND %d 5\r\nhello\r\n" % job
    client.do(b"kick-job %d" % job, b"KICKED")
    stats = client.job(job)
    assert stats["tube"] == f'"{tube.decode()}"'
    counted = [stats[key] for key in ("pri", "reserves", "releases", "buries", "kicks")]
    assert counted == ["9", "2", "1", "1", "2"]
    client.do(b"delete %d" % job, b"DELETED")
    client.do(b"delete %d" % job, b"NOT_FOUND")


def test_time_passes_within_a_pipeline_for_another_worker(cluster: Cluster) -> None:
    client = cluster.client()
    tube = cluster.tube_on(1)
    client.ask(b"watch %b\r\n" % tube)
    job = client.put(ttr=70, tube=tube)
    assert client.reserve() == job
    reply = client.ask(b"touch %d\r\nstats-job %d\r\n" % (job, job))
    assert reply.startswith(b"TOUCHED\r\n")
    assert stats_of(reply.removeprefix(b"TOUCHED\r\n"))["time-left"] == "69"


def test_ids_count_in_the_order_of_the_put_lines(cluster: Cluster) -> None:
    tubes = [cluster.tube_on(shard) for shard in range(cluster.workers)]
    first, second = cluster.client(0), cluster.client(1)
    assert [first.put(tube=tube) for tube in tubes * 2] == list(range(1, 2 * len(tubes) + 1))
    next_id = 2 * len(tubes) + 1
    # A line is enough to take an id, wherever the body goes.
    first.send(b"use %b\r\nput 0 0 9 1\r\n" % tubes[-1])
    first.read()
    assert second.put(tube=tubes[0]) == next_id + 1
    assert first.ask(b"x\r\n") == b"INSERTED %d\r\n" % next_id


def test_the_best_job_of_all_shards_comes_first(cluster: Cluster) -> None:
    tubes = [cluster.tube_on(shard) for shard in range(cluster.workers)]
    producer, client = cluster.client(0), cluster.client(1)
    for tube in tubes:
        client.ask(b"watch %b\r\n" % tube)
    jobs = [
        (pri, producer.put(pri=pri, tube=tubes[n % len(tubes)]))
        for n, pri in enumerate([5, 3, 5, 1, 3, 0, 5])
    ]
    order = []
    while (job := client.reserve()) is not None:
        order.append(job)
    assert order == [job for _, job in sorted(jobs)]


def test_a_waiting_client_gets_the_next_job_of_any_shard(cluster: Cluster) -> None:
    tubes = [cluster.tube_on(shard) for shard in range(cluster.workers)]
    producer, client = cluster.client(1), cluster.client(0)
    for tube in tubes:
        client.ask(b"watch %b\r\n" % tube)
    for tube in tubes:
        assert client.ask(b"reserve\r\n") == b""
        assert producer.tube(tube)["current-waiting"] == "1"
        assert total(cluster, "waiting") == 1
        job = producer.put(b"b", tube=tube)
        assert client.read() == b"RESERVED %d 1\r\nb\r\n" % job
        assert total(cluster, "waiting") == 0
        assert all(producer.tube(t)["current-waiting"] == "0" for t in tubes)


def test_one_job_for_many_waiting_clients_is_given_once(cluster: Cluster) -> None:
    tubes = [cluster.tube_on(shard) for shard in range(cluster.workers)]
    clients = [cluster.client(n % cluster.workers) for n in range(6)]
    for client in clients:
        for tube in tubes:
            client.ask(b"watch %b\r\n" % tube)
        assert client.ask(b"reserve\r\n") == b""
    producer = cluster.client()
    given = []
    for n, tube in enumerate(tubes):
        job = producer.put(tube=tube)
        got = [client.read() for client in clients]
        # The client that has waited longest is served first.
        assert got[n] == b"RESERVED %d 1\r\nx\r\n" % job
        assert got.count(b"") == len(clients) - 1
        given.append(job)
    assert total(cluster, "reserved") == len(given)


def test_claims_that_meet_are_put_back_unchanged(cluster: Cluster) -> None:
    """Two shards serve the same waiting client before either receives the other's message."""
    here, there = cluster.tube_on(0), cluster.tube_on(1)
    client = cluster.client(cluster.workers - 1)
    client.ask(b"watch %b\r\nwatch %b\r\nreserve\r\n" % (here, there))
    first, second = cluster.cores[0], cluster.cores[1]
    assert first is not None and second is not None
    putters = [(first, first.open(), here), (second, second.open(), there)]
    for core, session, tube in putters:
        core.feed(session, b"use %b\r\nput 7 0 50 1\r\nx\r\n" % tube)
    cluster.settle()
    reply = client.read()
    assert reply.startswith(b"RESERVED ")
    given = int(reply.split()[1])
    (other,) = {1, 2} - {given}
    stats = client.job(other)
    assert (stats["state"], stats["reserves"], stats["pri"]) == ("ready", "0", "7")
    assert client.job(given)["reserves"] == "1"
    assert (total(cluster, "ready"), total(cluster, "reserved")) == (1, 1)
    assert client.reserve() == other


def test_replies_keep_the_order_of_commands(cluster: Cluster) -> None:
    """Also for commands of this shard between commands of others."""
    tubes = [cluster.tube_on(shard) for shard in range(cluster.workers)] * 3
    script = (
        b"use %b\r\nput 0 0 9 1\r\nx\r\nlist-tube-used\r\nbogus\r\npeek-ready\r\nput 0 0 9 1\r\nxxx"
    )
    client = cluster.client()
    replies = client.ask(b"".join(script % tube for tube in tubes))
    jobs = {tube: 2 * n + 1 for n, tube in reversed([*enumerate(tubes)])}  # the first of each
    assert replies == b"".join(
        b"USING %b\r\nINSERTED %d\r\nUSING %b\r\nUNKNOWN_COMMAND\r\n"
        b"FOUND %d 1\r\nx\r\nEXPECTED_CRLF\r\n" % (tube, 2 * n + 1, tube, jobs[tube])
        for n, tube in enumerate(tubes)
    )


def test_a_client_that_leaves_gives_its_jobs_back(cluster: Cluster, near: int) -> None:
    tube = cluster.tube_on(near)
    client, other = cluster.client(0), cluster.client(1)
    job = client.put(tube=tube)
    client.ask(b"watch %b\r\n" % tube)
    assert client.reserve() == job
    assert other.job(job)["state"] == "reserved"
    client.close()
    assert other.job(job)["state"] == "ready"
    other.do(b"delete %d" % job, b"DELETED")


def test_tubes_are_listed_once_in_creation_order(cluster: Cluster) -> None:
    client = cluster.client()
    tubes = [
        cluster.tube_on(shard, number) for number in range(2) for shard in range(cluster.workers)
    ]
    for tube in tubes:
        client.put(tube=tube)
    names = [tube.decode() for tube in tubes]
    assert client.names(b"list-tubes") == ["default", *names]
    assert client.names(b"list-tubes-watched") == ["default"]
    for job in range(1, len(tubes)):
        client.do(b"delete %d" % job, b"DELETED")
    assert client.names(b"list-tubes") == ["default", names[-1]]  # which is used
    client.do(b"use default", b"USING default")
    client.do(b"delete %d" % len(tubes), b"DELETED")
    assert client.names(b"list-tubes") == ["default"]


def test_tubes_are_listed_in_the_order_in_which_they_were_named(cluster: Cluster) -> None:
    """Not in the order in which their workers receive the counts, which is after the pipeline."""
    tubes = [
        cluster.tube_on(shard, number) for number in range(3) for shard in range(cluster.workers)
    ]
    first, second = cluster.client(0), cluster.client(1)
    first.ask(b"".join(b"watch %b\r\n" % tube for tube in tubes))
    names = [tube.decode() for tube in tubes]
    assert second.names(b"list-tubes") == ["default", *names]
    second.ask(b"watch %b\r\n" % tubes[-1])
    first.close()
    first = cluster.client(0)
    first.ask(b"".join(b"watch %b\r\n" % tube for tube in reversed(tubes)))
    assert second.names(b"list-tubes") == ["default", names[-1], *reversed(names[:-1])]


def test_a_tube_that_is_briefly_unused_is_created_anew(cluster: Cluster, near: int) -> None:
    tube, other = cluster.tube_on(near), cluster.tube_on(near, 1)
    client = cluster.client()
    client.ask(b"use %b\r\npause-tube %b 100\r\nwatch %b\r\n" % (tube, tube, other))
    assert client.tube(tube)["pause"] == "100"
    client.ask(b"use default\r\nuse %b\r\n" % tube)
    assert client.tube(tube)["pause"] == "0"
    assert client.names(b"list-tubes") == ["default", other.decode(), tube.decode()]
    assert client.tube(tube)["current-using"] == "1"


def test_users_and_watchers_are_counted_where_the_tube_is(cluster: Cluster) -> None:
    tube = cluster.tube_on(1)
    clients = [cluster.client(n % cluster.workers) for n in range(4)]
    for client in clients:
        client.ask(b"use %b\r\nwatch %b\r\n" % (tube, tube))
    stats = clients[0].tube(tube)
    assert (stats["current-using"], stats["current-watching"]) == ("4", "4")
    clients[0].do(b"ignore " + tube, b"WATCHING 1")
    clients[1].close()
    stats = clients[0].tube(tube)
    assert (stats["current-using"], stats["current-watching"]) == ("3", "2")
    assert clients[0].tube(b"default")["current-watching"] == "3"


def test_pause_works_from_anywhere(cluster: Cluster, near: int) -> None:
    tube = cluster.tube_on(near)
    client = cluster.client()
    client.put(tube=tube)
    client.ask(b"watch %b\r\n" % tube)
    client.do(b"pause-tube %b 100" % tube, b"PAUSED")
    assert client.reserve() is None
    assert client.tube(tube)["pause"] == "100"
    client.do(b"pause-tube %b 0" % tube, b"PAUSED")
    assert client.reserve() == 1
    client.do(b"pause-tube nobody 1", b"NOT_FOUND")


def test_half_closed_while_waiting(cluster: Cluster, near: int) -> None:
    tube = cluster.tube_on(near)
    client = cluster.client()
    client.ask(b"watch %b\r\nignore default\r\n" % tube)
    assert client.ask(b"reserve\r\n") == b""
    client.finish()
    assert client.read() == b"TIMED_OUT\r\n"
    other = cluster.client(1)
    other.put(tube=tube)
    assert other.job(1)["state"] == "ready"


def test_a_worker_that_dies(cluster: Cluster) -> None:
    tubes = [cluster.tube_on(shard) for shard in range(cluster.workers)]
    last = cluster.workers - 1
    waiting = cluster.client(0)
    for tube in tubes:
        waiting.ask(b"watch %b\r\n" % tube)
    assert waiting.ask(b"reserve\r\n") == b""
    alone = cluster.client(0)
    alone.ask(b"watch %b\r\nignore default\r\n" % tubes[last])
    assert alone.ask(b"reserve\r\n") == b""
    other = cluster.client(0)
    cluster.kill(last)
    cluster.settle()
    assert other.ask(b"use %b\r\nput 0 0 9 1\r\nx\r\n" % tubes[last]).endswith(
        b"INTERNAL_ERROR\r\n"
    )
    assert other.ask(b"stats-tube %b\r\n" % tubes[last]) == b"INTERNAL_ERROR\r\n"
    assert other.put(tube=tubes[0]) > 0
    assert waiting.read().startswith(b"RESERVED")
    assert waiting.ask(b"reserve\r\n") == b""
    cluster.start(last)
    cluster.settle()
    first = other.put(tube=tubes[last])
    second = other.put(tube=tubes[last])
    got = {waiting.read(), alone.read()}
    assert got == {b"RESERVED %d 1\r\nx\r\n" % job for job in (first, second)}
    stats = other.tube(tubes[last])
    assert (stats["current-using"], stats["current-watching"]) == ("1", "2")


def test_a_client_that_does_not_read_costs_little_at_home(cluster: Cluster, near: int) -> None:
    """The home requests no more replies than it would buffer itself."""
    size, peeks = 60_000, 120
    client = cluster.client()
    job = client.put(b"x" * size, tube=cluster.tube_on(near))
    client.send(b"peek %d\r\n" % job * peeks)
    kept = client.read()
    assert len(kept) < 2 << 20
    while piece := client.ask(b""):
        assert len(piece) < 2 << 20
        kept += piece
    assert kept == (b"FOUND %d %d\r\n%b\r\n" % (job, size, b"x" * size)) * peeks
