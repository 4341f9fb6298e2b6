"""`conns`: origin, tubes, waits and reserved jobs of each connection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from processes import eventually
from servers import Server, ours
from shards import tubes_of
from wire import Client, inserted_id

from beanstalkd_py.control.client import connect

MANY = 500


@pytest.fixture(params=[1, 2, 4])
def workers(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.fixture
def server(workers: int) -> Iterator[Server]:
    with ours(f"--workers={workers}") as running:
        yield running


def all_connections(server: Server) -> list[dict[str, Any]]:
    with connect(f"127.0.0.1:{server.port}") as control:
        return list(control.parts("conns"))


def row_of(server: Server, client: Client) -> dict[str, Any]:
    address = f"127.0.0.1:{client.port}"
    (row,) = [row for row in all_connections(server) if row["from"] == address]
    return row


@pytest.mark.costly
def test_the_row_of_a_connection(server: Server, workers: int) -> None:
    names = [next(tubes_of(worker, workers)) for worker in range(workers)]
    with server.connect() as client:
        client.ask(b"use %b\r\n" % names[-1])
        for name in names:
            client.ask(b"watch %b\r\n" % name)
        row = row_of(server, client)
        assert row["use"] == names[-1].decode()
        assert row["watch"] == ["default", *[name.decode() for name in names]]
        assert row["watching"] == workers + 1
        assert (row["waits"], row["holds"], row["jobs"]) == (False, 0, [])
        assert (row["producer"], row["worker-role"]) == (False, False)
        client.send(b"reserve-with-timeout 100\r\n")
        assert eventually(lambda: row_of(server, client)["waits"])
        assert 90 < row_of(server, client)["waits-s"] <= 100


@pytest.mark.slow
def test_reserved_jobs_of_all_workers_are_listed(server: Server, workers: int) -> None:
    with server.connect() as client:
        jobs = []
        for worker in range(workers):
            name = next(tubes_of(worker, workers))
            client.ask(b"use %b\r\n" % name)
            client.ask(b"watch %b\r\n" % name)
            jobs.append(inserted_id(client.ask(b"put 0 0 100 1\r\nx\r\n")))
        for _ in jobs:
            client.reserve()
        row = row_of(server, client)
        assert row["holds"] == workers
        assert sorted(row["jobs"]) == jobs
        assert row["producer"]
        assert row["worker-role"]


@pytest.mark.slow
def test_a_wait_without_a_timeout(server: Server) -> None:
    with server.connect() as client:
        client.ask(b"list-tube-used\r\n")  # so that it has a worker
        client.send(b"reserve\r\n")
        assert eventually(lambda: row_of(server, client)["waits"])
        assert row_of(server, client)["waits-s"] is None


@pytest.mark.slow
def test_many_connections_are_all_listed(server: Server, workers: int) -> None:
    clients = [server.connect() for _ in range(MANY)]
    name = b"x" * 200
    for number, client in enumerate(clients[1:]):
        client.send(b"watch %b\r\nuse tube-%d\r\n" % (name, number))
    for client in clients[1:]:
        assert client.replies(2)[0] == b"WATCHING 2\r\n"
    rows = all_connections(server)
    assert len({row["from"] for row in rows}) == len(rows) == MANY - 1 + (workers == 1)
    with connect(f"127.0.0.1:{server.port}") as control:
        assert control.ask("conns") == {"silent": int(workers > 1)}
    for client in clients:
        client.close()


@pytest.mark.slow
def test_many_connections_with_full_rows(server: Server) -> None:
    """No message exceeds the size of a channel message."""
    names = [(b"%d-" % number).ljust(200, b"x") for number in range(8)]
    watch = b"".join(b"watch %b\r\n" % name[:96] for name in names)
    clients = [server.connect() for _ in range(150)]
    for number, client in enumerate(clients):
        client.send(b"use %b\r\n%b" % (names[number % 8], watch))
        client.send(b"put 0 0 1000 1\r\nx\r\nwatch %b\r\nreserve\r\n" % names[number % 8] * 20)
    for client in clients:
        assert client.replies(69)[-1].startswith(b"RESERVED")
    rows = all_connections(server)
    assert len(rows) == len(clients)
    assert all(row["holds"] == 20 for row in rows)
    for client in clients:
        client.close()


@pytest.mark.slow
def test_a_connection_with_more_tubes_than_fit(server: Server) -> None:
    with server.connect() as client:
        for number in range(100):
            client.ask(b"watch %b%d\r\n" % (b"y" * 190, number))
        row = row_of(server, client)
        assert row["watching"] == 101
        assert 1 < len(row["watch"]) < 10
