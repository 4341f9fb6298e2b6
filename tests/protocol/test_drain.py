"""Drain mode: after SIGUSR1 puts are refused, and all other commands work."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from servers import Server, ours
from wire import FENCE, FENCE_REPLY, Client

DRAINING = b"DRAINING\r\n"
MAX_SIZE = 100


@pytest.fixture(scope="module")
def draining_server() -> Iterator[tuple[Server, int]]:
    """A server in drain mode that holds one job, and the id of that job."""
    with ours("-z", str(MAX_SIZE)) as server:
        with server.connect() as client:
            job = client.put(b"kept")
            assert client.stats()["draining"] == "false"
            server.signal(signal.SIGUSR1)
            for _ in range(500):
                if client.stats()["draining"] == "true":
                    break
                client.silent(0.01)
            assert client.stats()["draining"] == "true"
        yield server, job


@pytest.fixture
def client(draining_server: tuple[Server, int]) -> Iterator[Client]:
    """A connection to the server in drain mode."""
    with draining_server[0].connect() as connected:
        yield connected


@pytest.mark.parametrize(
    ("put", "reply"),
    [
        (b"put 0 0 1 3\r\nabc\r\n", DRAINING),
        (b"put 0 100 1 0\r\n\r\n", DRAINING),
        (b"put 0 0 1 3\r\nabcde", b"EXPECTED_CRLF\r\n"),
        (b"put 0 0 1 101\r\n" + b"x" * 103, b"JOB_TOO_BIG\r\n"),
        (b"put 0 0 1 3 x\r\n", b"BAD_FORMAT\r\n"),
        (b"put 0 0 x 3\r\n", b"BAD_FORMAT\r\n"),
    ],
)
def test_puts_are_refused_after_their_body(client: Client, put: bytes, reply: bytes) -> None:
    before = client.stats()
    client.send(put + FENCE)
    assert client.replies(2) == [reply, FENCE_REPLY]
    after = client.stats()
    for key in ("total-jobs", "current-jobs-ready", "current-jobs-delayed"):
        assert after[key] == before[key]


def test_every_connection_is_reported(client: Client, draining_server: tuple[Server, int]) -> None:
    """Applies to connections opened before and after the signal."""
    for _ in range(3):
        with draining_server[0].connect() as other:
            assert other.ask(b"put 0 0 1 0\r\n\r\n") == DRAINING
    assert client.ask(b"put 0 0 1 0\r\n\r\n") == DRAINING


def test_jobs_can_still_be_finished(client: Client, draining_server: tuple[Server, int]) -> None:
    job = draining_server[1]
    assert client.reserve() == job
    assert client.ask(b"release %d 5 100\r\n" % job) == b"RELEASED\r\n"
    assert client.ask(b"kick 1\r\n") == b"KICKED 1\r\n"
    client.bury(job)
    assert client.ask(b"kick-job %d\r\n" % job) == b"KICKED\r\n"
    assert client.ask(b"peek %d\r\n" % job) == b"FOUND %d 4\r\nkept\r\n" % job
    assert client.reserve() == job
    assert client.ask(b"touch %d\r\n" % job) == b"TOUCHED\r\n"
    assert client.ask(b"release %d 5 0\r\n" % job) == b"RELEASED\r\n"
