"""Several workers are one server: every client sees the effects of acknowledged commands."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
from processes import children, eventually
from servers import Server, ours
from shards import connect_at, tubes_of
from wire import Client, list_of, stats_of, wait_for

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
    """Open three connections, to the first, the last and the second worker."""
    opened = [connect_at(server, worker, workers) for worker in (0, workers - 1, 1)]
    yield opened
    for client in opened:
        client.close()


def test_a_new_tube_is_visible_to_all(clients: list[Client], workers: int) -> None:
    """As soon as the client that created it has its reply."""
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


def test_acknowledged_commands_are_visible_to_all(clients: list[Client], workers: int) -> None:
    """Without retries or pauses of the clients."""
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


def test_a_pause_applies_to_all(clients: list[Client], workers: int) -> None:
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


def test_a_closed_connection_releases_jobs_of_all_workers(
    server: Server, clients: list[Client], workers: int
) -> None:
    """In the order of reservation per worker; the order over workers is undefined."""
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


def test_the_longest_waiter_of_a_worker_is_served_first(
    server: Server, clients: list[Client], workers: int
) -> None:
    """Each client waits at a tube of every worker; the order over workers is undefined."""
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


# --- statistics ---------------------------------------------------------------------------------


TRIES = 100
MOVES_AFTER = 32


def counts(client: Client, tube: bytes) -> tuple[int, int]:
    """Return how many connections use and watch the tube."""
    shown = client.stats(b"stats-tube " + tube)
    return int(shown["current-using"]), int(shown["current-watching"])


def connected(client: Client) -> tuple[int, int, int, int]:
    """Return connections, producers, workers and tubes."""
    shown = client.stats()
    names = ("connections", "producers", "workers", "tubes")
    connections, producers, workers, tubes = (int(shown[f"current-{name}"]) for name in names)
    return connections, producers, workers, tubes


def test_a_new_connection_is_counted_once(server: Server) -> None:
    for _ in range(4 * TRIES):
        with server.connect() as client:
            assert counts(client, b"default") == (1, 1)


def test_a_connection_sees_its_own_effects(server: Server, workers: int) -> None:
    for home in range(workers):
        with connect_at(server, home, workers) as client:
            for number in range(TRIES):
                tube = b"%b-%d" % (next(tubes_of(number % workers, workers)), number)
                assert client.ask(b"use %b\r\n" % tube) == b"USING %b\r\n" % tube
                client.send(b"use default\r\nstats\r\n")
                _, stats = client.replies(2)
                assert stats_of(stats)["current-tubes"] == "1"
                client.send(b"watch %b\r\nignore %b\r\nlist-tubes\r\n" % (tube, tube))
                assert list_of(client.replies(3)[2]) == [b"default"]
                client.send(b"watch %b\r\nstats-tube %b\r\nlist-tubes\r\n" % (tube, tube))
                _, stats, tubes = client.replies(3)
                assert stats_of(stats)["current-watching"] == "1"
                assert list_of(tubes) == [b"default", tube]
                client.send(b"ignore %b\r\npause-tube %b 0\r\n" % (tube, tube))
                assert client.replies(2)[1] == b"NOT_FOUND\r\n"


def test_each_reply_of_a_pipeline_reflects_the_commands_before(
    server: Server, workers: int
) -> None:
    """Also between two replies in one packet."""
    near, far = (next(tubes_of(owner, workers)) for owner in (0, workers - 1))
    for _ in range(3 * TRIES):
        with server.connect() as client:
            client.send(
                b"list-tubes\r\nwatch %b\r\nwatch %b\r\nstats\r\n" % (near, far)
                + b"ignore %b\r\nignore %b\r\nstats\r\n" % (near, far)
                + b"use %b\r\nstats\r\nuse default\r\nstats\r\n" % far
            )
            replies = client.replies(11)
            shown = [stats_of(replies[at])["current-tubes"] for at in (3, 6, 8, 10)]
            assert shown == ["3", "1", "2", "1"]


def test_a_client_sees_the_acknowledged_commands_of_another(
    clients: list[Client], workers: int
) -> None:
    one, two, three = clients
    for number in range(TRIES):
        tube = b"%b-%d" % (next(tubes_of(number % workers, workers)), number)
        for client in (one, two):
            client.ask(b"use %b\r\n" % tube)
        one.ask(b"watch %b\r\n" % tube)
        assert counts(three, tube) == (2, 1)
        one.ask(b"use default\r\n")
        assert counts(two, tube) == (1, 1)
        one.ask(b"ignore %b\r\n" % tube)
        assert counts(three, tube) == (1, 0)
        assert list_of(one.ask(b"list-tubes\r\n")) == [b"default", tube]
        two.ask(b"use default\r\n")
        assert list_of(three.ask(b"list-tubes\r\n")) == [b"default"]
        assert connected(one)[3] == 1


@pytest.mark.parametrize("how", ["quit", "close"])
def test_a_closed_connection_is_not_counted(server: Server, workers: int, how: str) -> None:
    """Once its end was read, or its client has closed it."""
    with connect_at(server, workers - 1, workers) as other:
        for number in range(TRIES):
            tube = b"%b-%d" % (next(tubes_of(number % workers, workers)), number)
            client = connect_at(server, number // 2 % workers, workers)
            client.send(b"use %b\r\nwatch %b\r\n" % (tube, tube))
            client.replies(2)
            assert client.ask(b"delete %d\r\n" % client.put()) == b"DELETED\r\n"
            other.ask(b"watch %b\r\n" % tube)
            assert connected(other) == (2, 1, 0, 2)
            if how == "quit":
                client.send(b"quit\r\n")
                client.read_to_end()
            client.close()
            if number % 2:
                assert counts(other, tube) == (0, 1)
            else:
                assert connected(other) == (1, 0, 0, 2)
            assert counts(other, b"default") == (1, 1)
            other.ask(b"ignore %b\r\n" % tube)


def test_a_migrating_connection_is_counted_once(server: Server, workers: int) -> None:
    """It uses a tube of each worker, and no worker loses its references."""
    tubes = [next(tubes_of(worker, workers)) for worker in range(workers)]
    with connect_at(server, workers - 1, workers) as other:
        for number in range(TRIES // 4):
            with connect_at(server, number % workers, workers) as client:
                for tube in tubes:
                    client.ask(b"watch %b\r\n" % tube)
                    assert other.ask(b"pause-tube %b 0\r\n" % tube) == b"PAUSED\r\n"
                used = tubes[(number + 1) % workers]
                client.ask(b"use %b\r\n" % used)
                assert client.ask(b"delete %d\r\n" % client.put()) == b"DELETED\r\n"
                asked = 4 + number % 3
                client.send(b"peek-ready\r\n" * (MOVES_AFTER - asked))
                client.replies(MOVES_AFTER - asked)
                for _ in range(asked):
                    assert client.ask(b"peek-ready\r\n") == b"NOT_FOUND\r\n"
                    for tube in tubes:
                        shown = other.stats(b"stats-tube " + tube)
                        assert shown["current-using"] == str(int(tube == used))
                        assert shown["current-watching"] == "1"
                        assert shown["cmd-pause-tube"] == "1"
                    assert counts(other, b"default") == (1, 2)
                    assert connected(other) == (2, 1, 0, 1 + workers)
                    assert list_of(other.ask(b"list-tubes\r\n")) == [b"default", *tubes]


@pytest.mark.costly
def test_a_hung_worker_does_not_delay_replies(server: Server, workers: int) -> None:
    """Replies do not include it until it continues."""
    pids = children(server.pid)[:workers]
    with connect_at(server, 0, workers) as client, connect_at(server, 1, workers) as hanging:
        tube = next(tubes_of(0, workers))
        hanging.ask(b"use %b\r\n" % tube)
        os.kill(pids[1], signal.SIGSTOP)
        try:
            assert counts(client, tube) == (1, 0)
            assert connected(client)[0] == 2
            asked_mono = time.monotonic()
            assert client.ask(b"list-tubes\r\n") == b"INTERNAL_ERROR\r\n"  # some would be missing
            assert time.monotonic() - asked_mono < 4
        finally:
            os.kill(pids[1], signal.SIGCONT)
        assert tube in list_of(client.ask(b"list-tubes\r\n"))
        hanging.ask(b"watch %b\r\n" % tube)
        assert counts(client, tube) == (1, 1)
