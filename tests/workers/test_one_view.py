"""Several workers are one server: what has been answered is seen by everyone, wherever they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from processes import eventually
from servers import Server, ours
from wire import Client, wait_for
from workers.shards import connect_at, tubes_of

ROUNDS = 60


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)])
def workers(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.fixture(scope="module")
def server(workers: int) -> Iterator[Server]:
    with ours("--workers", str(workers)) as running:
        yield running


@pytest.fixture
def clients(server: Server, workers: int) -> Iterator[list[Client]]:
    """Three, at the first worker, the last and the second."""
    opened = [connect_at(server, worker, workers) for worker in (0, workers - 1, 1)]
    yield opened
    for client in opened:
        client.close()


def test_a_new_tube_is_there_for_everyone(clients: list[Client], workers: int) -> None:
    """As soon as the one who named it first has been answered."""
    one, two, three = clients
    for number in range(ROUNDS):
        used, watched = b"used-%d" % number, b"watched-%d" % number
        assert one.ask(b"use %b\r\n" % used) == b"USING %b\r\n" % used
        assert two.ask(b"pause-tube %b 0\r\n" % used) == b"PAUSED\r\n"
        assert three.ask(b"stats-tube %b\r\n" % used).startswith(b"OK ")
        assert one.ask(b"watch %b\r\n" % watched) == b"WATCHING 2\r\n"
        assert used in (names := two.ask(b"list-tubes\r\n")) and watched in names
        assert three.ask(b"stats-tube %b\r\n" % watched).startswith(b"OK ")
        assert one.ask(b"ignore %b\r\n" % watched) == b"WATCHING 1\r\n"


def test_what_is_answered_has_happened_for_everyone(clients: list[Client], workers: int) -> None:
    """No client asks twice, and none waits before it asks."""
    one, two, three = clients
    for number in range(ROUNDS):
        tube = next(tubes_of(number % workers, workers))
        for client in clients:
            client.ask(b"use %b\r\n" % tube)
            client.ask(b"watch %b\r\n" % tube)
        job = one.put()
        found, reserved = b"FOUND %d 1\r\nx\r\n" % job, b"RESERVED %d 1\r\nx\r\n" % job
        assert two.ask(b"peek %d\r\n" % job) == found
        assert three.ask(b"peek-ready\r\n") == found
        assert three.ask(b"reserve-with-timeout 0\r\n") == reserved
        assert two.ask(b"peek-ready\r\n") == b"NOT_FOUND\r\n"
        assert one.ask(b"reserve-job %d\r\n" % job) == b"NOT_FOUND\r\n"
        assert three.ask(b"bury %d 1\r\n" % job) == b"BURIED\r\n"
        assert two.ask(b"peek-buried\r\n") == found
        assert one.ask(b"kick-job %d\r\n" % job) == b"KICKED\r\n"
        assert two.ask(b"reserve-with-timeout 0\r\n") == reserved
        assert two.ask(b"release %d 0 100\r\n" % job) == b"RELEASED\r\n"
        assert three.ask(b"peek-delayed\r\n") == found
        assert one.ask(b"kick 1\r\n") == b"KICKED 1\r\n"
        assert three.ask(b"reserve-with-timeout 0\r\n") == reserved
        assert three.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
        assert two.ask(b"peek %d\r\n" % job) == b"NOT_FOUND\r\n"
        assert two.stats()["current-jobs-ready"] == "0"


def test_a_pause_holds_for_everyone(clients: list[Client], workers: int) -> None:
    one, two, three = clients
    for shard in range(workers):
        tube = next(tubes_of(shard, workers))
        one.ask(b"use %b\r\n" % tube)
        job = one.put()
        for client in (two, three):
            client.ask(b"watch %b\r\n" % tube)
        assert two.ask(b"pause-tube %b 100\r\n" % tube) == b"PAUSED\r\n"
        assert three.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
        assert one.ask(b"pause-tube %b 0\r\n" % tube) == b"PAUSED\r\n"
        assert three.ask(b"reserve-with-timeout 0\r\n") == b"RESERVED %d 1\r\nx\r\n" % job
        assert three.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"


def test_who_leaves_gives_back_what_it_holds_anywhere(
    server: Server, clients: list[Client], workers: int
) -> None:
    """In the order of reserving at each worker; whose job comes first to who waits is left open."""
    tubes = [next(tubes_of(shard, workers)) for shard in range(workers)]
    producer, waiting, _ = clients
    holder = connect_at(server, 0, workers)
    jobs = []
    for tube in tubes * 2:
        producer.ask(b"use %b\r\n" % tube)
        jobs.append(producer.put())
        assert holder.ask(b"reserve-job %d\r\n" % jobs[-1]).startswith(b"RESERVED")
    for tube in tubes:
        waiting.ask(b"watch %b\r\n" % tube)
    waiting.send(b"reserve\r\n")
    for tube in tubes:
        wait_for(producer, tube, "current-waiting", 1)
    holder.close()
    given = [int(waiting.reply().split()[1])]
    assert given[0] in jobs[:workers]
    assert eventually(
        lambda: int(producer.stats()["current-jobs-ready"]) == len(jobs) - 1, limit_s=5
    )
    given += [waiting.reserve() for _ in jobs[1:]]
    assert given == [given[0], *(job for job in jobs if job != given[0])]
    for job in given:
        assert waiting.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"


def test_who_has_waited_longest_at_a_worker_is_served_first(
    server: Server, clients: list[Client], workers: int
) -> None:
    """Each waits at a tube of every worker; over several workers the order would be left open."""
    tubes = [next(tubes_of(shard, workers)) for shard in range(workers)]
    waiting = [connect_at(server, number % workers, workers) for number in range(4)]
    for count, client in enumerate(waiting, 1):
        for tube in tubes:
            client.ask(b"watch %b\r\n" % tube)
        client.send(b"reserve\r\n")
        for tube in tubes:
            wait_for(clients[0], tube, "current-waiting", count)
    for client in waiting:
        clients[0].ask(b"use %b\r\n" % tubes[-1])
        job = clients[0].put()
        assert client.reply() == b"RESERVED %d 1\r\nx\r\n" % job
        assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
        client.close()
