"""The synchronous client: greenstalk's commands, extensions, and errors."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import greenstalk
import pytest
from servers import Server

from beanstalkd_py import client as client_module
from beanstalkd_py import errors
from beanstalkd_py.client import Client, ListedJob


def connect(server: Server, tube: str) -> Client[str]:
    return Client(("127.0.0.1", server.port), use=tube, watch=tube)


def test_commands_of_greenstalk(any_server: Server, name: str) -> None:
    with connect(any_server, name) as client:
        assert isinstance(client, greenstalk.Client)
        put = client.put("hello", priority=5, ttr=100)
        job = client.reserve(timeout=0)
        assert (job.id, job.body) == (put, "hello")
        client.release(job, priority=6)
        assert client.stats_job(put)["pri"] == 6
        client.delete(client.reserve(timeout=0))
        with pytest.raises(greenstalk.TimedOutError):
            client.reserve(timeout=0)


def test_features(server: Server, beanstalkd: Server, name: str) -> None:
    with connect(server, name) as client:
        assert {"list-jobs", "truncate", "wait", "reserve-batch"} <= client.features()
    with connect(beanstalkd, name) as client:
        assert client.features() == frozenset()


def test_features_are_asked_once(beanstalkd: Server, name: str) -> None:
    with connect(beanstalkd, name) as client:
        client.features()
        # A command would fail on a socket that cannot send.
        client._sock.shutdown(socket.SHUT_WR)
        assert client.features() == frozenset()


@pytest.mark.parametrize(
    ("feature", "use"),
    [
        ("list-jobs", lambda client, job: next(client.list_jobs("default"))),
        ("truncate", lambda client, job: client.truncate("default")),
        ("wait", lambda client, job: client.wait(0, job)),
        ("move", lambda client, job: client.move(job, "other")),
        ("reserve-batch", lambda client, job: client.reserve_batch(1, 0)),
        ("with", lambda client, job: client.put("not sent", unique="k")),
    ],
)
def test_a_missing_extension_is_named_and_changes_nothing(
    beanstalkd: Server, name: str, feature: str, use: Callable[[Client[str], int], object]
) -> None:
    with connect(beanstalkd, name) as client:
        job = client.put("stays")
        with pytest.raises(errors.MissingFeatureError, match=f'"{feature}"') as caught:
            use(client, job)
        assert caught.value.feature == feature
        assert client.reserve(timeout=0).body == "stays"


def test_put_with_options(server: Server, name: str) -> None:
    with connect(server, name) as client:
        job = client.put("one", unique="k", window=1000, expires=1000, delay_ms=5500)
        assert client.put("two", unique="k") == job
        stats = client.stats_job(job)
        assert (stats["state"], stats["delay"]) == ("delayed", 6)
        client.delete(job)
        assert client.put("two", unique="k") == job
        assert client.put("three", delay=7, delay_ms=0) != job
        assert client.reserve(timeout=0).body == "three"


@pytest.mark.parametrize(
    "options",
    [
        *({"unique": key} for key in ("", "a b", "ä", "k" * 129)),
        *({"window": 1}, {"unique": "k", "window": 0}),
        *({"expires": 0}, {"expires": 2**32}, {"delay_ms": -1}, {"delay_ms": 2**32}),
    ],
)
def test_options_that_the_server_rejects_are_not_sent(
    server: Server, name: str, options: dict[str, Any]
) -> None:
    with connect(server, name) as client:
        with pytest.raises(ValueError, match="use"):
            client.put("x", **options)
        assert client.reserve_job(client.put("y")).body == "y"


def test_truncate(server: Server, name: str) -> None:
    with connect(server, name) as client:
        held = client.put("held", priority=1)
        for delay in (0, 0, 100):
            client.put("goes", delay=delay)
        assert client.reserve(timeout=0).id == held
        assert client.truncate(name) == 3
        assert [job.id for job in client.list_jobs(name)] == [held]
        assert client.truncate(f"{name}.nosuch") == 0


def test_move(server: Server, name: str) -> None:
    with connect(server, name) as client:
        moved = client.move(client.put("body", delay=100), f"{name}.other", priority=3, delay=50)
        stats = client.stats_job(moved)
        assert (stats["tube"], stats["pri"], stats["delay"]) == (f"{name}.other", 3, 50)
        assert client.stats_job(client.move(moved, name))["state"] == "ready"
        job = client.reserve(timeout=0)
        assert job.body == "body"
        assert client.reserve_job(client.move(job, name)).body == "body"
        with pytest.raises(greenstalk.NotFoundError):
            client.move(job, name)


def test_a_listed_job_has_the_fields_of_its_statistics(server: Server, name: str) -> None:
    with connect(server, name) as client:
        job = client.put("four", priority=7, delay=100, ttr=50)
        client.kick_job(job)
        client.reserve(timeout=0)
        (listed,) = client.list_jobs(name)
        stats = client.stats_job(job)
        assert listed.bytes == 4
        for field in ListedJob.__slots__:
            if field not in ("bytes", "age", "time_left"):
                assert getattr(listed, field) == dict(stats)[field.replace("_", "-")], field
        assert abs(listed.age - stats["age"]) <= 1
        assert 48 <= listed.time_left <= 50


def test_jobs_are_listed_by_state_and_over_pages(server: Server, name: str) -> None:
    with connect(server, name) as client:
        ids = [client.put("x", delay=number % 2) for number in range(2100)]
        assert [job.id for job in client.list_jobs(name)] == ids
        assert {job.state for job in client.list_jobs(name, "ready")} == {"ready"}
        assert list(client.list_jobs(name, "buried")) == []


def test_a_page_is_read_when_it_is_needed(server: Server, name: str) -> None:
    with connect(server, name) as client:
        for _ in range(1001):
            client.put("x")
        jobs = client.list_jobs(name)
        next(jobs)
        client.truncate(name)
        assert len(list(jobs)) == 999


def test_wait_for_the_end_of_a_job(server: Server, name: str) -> None:
    with connect(server, name) as client, connect(server, name) as other:
        job = client.put("x")
        thread = threading.Timer(0.2, lambda: other.delete(other.reserve(timeout=0)))
        thread.start()
        assert client.wait(10, job) == "deleted"
        thread.join()
        with pytest.raises(greenstalk.NotFoundError):
            client.wait(0, job)


def test_wait_for_a_job_that_does_not_end(server: Server, name: str) -> None:
    with connect(server, name) as client:
        client.put("x", ttr=1)
        with pytest.raises(greenstalk.TimedOutError):
            client.wait(0, client.peek_ready())
        job = client.reserve(timeout=0)
        with pytest.raises(greenstalk.DeadlineSoonError):
            client.wait(10, job)
        client.bury(job)
        assert client.wait(10, job) == "buried"


def test_reserve_a_batch(server: Server, name: str) -> None:
    with connect(server, name) as client, connect(server, name) as other:
        client.watch(f"{name}.b")
        first = client.put("one", priority=1)
        client.use(f"{name}.b")
        rest = [client.put("", priority=2), client.put("three\r\n", priority=3), client.put("four")]
        # A batch has jobs of one worker.
        jobs = client.reserve_batch(3, 0)
        while len(jobs) < 3:
            jobs += client.reserve_batch(3 - len(jobs), 0)
        assert [(job.id, job.body, job.tube) for job in jobs] == [
            (first, "one", name),
            (rest[0], "", f"{name}.b"),
            (rest[1], "three\r\n", f"{name}.b"),
        ]
        for job in jobs:
            client.delete(job)
        assert [job.id for job in client.reserve_batch(1000, 0)] == [rest[2]]
        with pytest.raises(greenstalk.TimedOutError):
            client.reserve_batch(10, 0)
        thread = threading.Timer(0.2, lambda: other.put("late", ttr=1))
        thread.start()
        (late,) = client.reserve_batch(10, 10)
        thread.join()
        assert late.body == "late"
        with pytest.raises(greenstalk.DeadlineSoonError):
            client.reserve_batch(10, 10)


@pytest.mark.parametrize("wrong", ["", "-x", "a b", "x" * 201, "a\r\nput 0 0 1 1"])
def test_a_name_that_is_no_tube_is_not_sent(server: Server, name: str, wrong: str) -> None:
    with connect(server, name) as client:
        with pytest.raises(ValueError, match="tube name"):
            client.truncate(wrong)
        assert client.using() == name


@pytest.mark.parametrize("arguments", [{"delay": -3}, {"priority": 2**32}, {"ttr": -1}])
def test_a_put_that_the_server_rejects_is_not_sent(
    any_server: Server, name: str, arguments: dict[str, int]
) -> None:
    with connect(any_server, name) as client:
        with pytest.raises(ValueError, match="is out of range: use 0 to 4294967295"):
            client.put("list-tube-used", **arguments)
        assert client.reserve_job(client.put("x")).body == "x"


def test_a_put_with_a_bad_format_closes_the_connection() -> None:
    """The server executes its body, and the replies would become those of later commands."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def reject() -> None:
            accepted, _ = listener.accept()
            with accepted:
                accepted.recv(100)
                accepted.sendall(b"BAD_FORMAT\r\nUSING wrong\r\n")

        thread = threading.Thread(target=reject)
        thread.start()
        with Client(("127.0.0.1", listener.getsockname()[1])) as client:
            with pytest.raises(greenstalk.BadFormatError):
                client.put("list-tube-used")
            with pytest.raises(OSError):
                client.using()
        thread.join()


def test_bodies_are_bytes_without_an_encoding(server: Server, name: str) -> None:
    everything = bytes(range(256)) * 10
    address = ("127.0.0.1", server.port)
    with Client(address, encoding=None, use=name, watch=name) as client:
        client.put(everything)
        assert client.reserve(timeout=0).body == everything
        (listed,) = client.list_jobs(name)
        assert listed.bytes == len(everything)


def test_a_lost_connection_is_a_connection_error(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            accepted, _ = listener.accept()
            with accepted:
                accepted.recv(100)
                accepted.sendall(b"OK 100\r\n---\n- trunc")

        thread = threading.Thread(target=hang_up)
        thread.start()
        with Client(("127.0.0.1", listener.getsockname()[1])) as client:
            with pytest.raises(ConnectionError):
                client.features()
            with pytest.raises(OSError):
                client.features()
        thread.join()


@pytest.mark.costly
def test_names_are_listed_before_their_import() -> None:
    """The API reference has only the names that dir() returns."""
    names = sorted(set(client_module.__all__) & set(dir(client_module)))
    assert names == sorted(client_module.__all__)
    assert all(hasattr(client_module, name) for name in names)
    with pytest.raises(AttributeError):
        _ = client_module.nosuch
