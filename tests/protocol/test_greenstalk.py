"""End to end with greenstalk, an independent client library."""

from __future__ import annotations

from collections.abc import Iterator

import greenstalk
import pytest
from servers import Server

TUBE = "green"


@pytest.fixture
def queue(server: Server, request: pytest.FixtureRequest) -> Iterator[greenstalk.Client[str]]:
    """A client that uses and watches a tube named after its test."""
    name = f"green.{request.function.__name__}".replace("_", "-")
    with greenstalk.Client(("127.0.0.1", server.port), use=name, watch=name) as client:
        yield client


def test_the_life_of_a_job(queue: greenstalk.Client[str]) -> None:
    put = queue.put("hello", priority=5, ttr=100)
    job = queue.reserve(timeout=0)
    assert (job.id, job.body) == (put, "hello")
    queue.touch(job)
    queue.release(job, priority=6, delay=100)
    assert queue.stats_job(job)["state"] == "delayed"
    assert queue.peek_delayed().id == put
    assert queue.kick(10) == 1
    queue.bury(queue.reserve(timeout=0), priority=7)
    assert queue.peek_buried().id == put
    queue.kick_job(job)
    assert queue.peek_ready().body == "hello"
    stats = queue.stats_job(job)
    assert (stats["pri"], stats["kicks"]) == (7, 2)
    assert (stats["reserves"], stats["releases"], stats["buries"]) == (2, 1, 1)
    queue.delete(queue.reserve_job(put))
    with pytest.raises(greenstalk.NotFoundError):
        queue.peek(put)


def test_tubes(queue: greenstalk.Client[str]) -> None:
    name = queue.using()
    assert queue.watching() == [name]
    assert queue.watch(f"{name}.b") == 2
    assert queue.ignore(name) == 1
    with pytest.raises(greenstalk.NotIgnoredError):
        queue.ignore(f"{name}.b")
    assert {"default", name, f"{name}.b"} <= set(queue.tubes())
    queue.use(f"{name}.b")
    queue.pause_tube(f"{name}.b", 100)
    queue.put("held back")
    assert queue.stats_tube(f"{name}.b")["pause"] == 100
    with pytest.raises(greenstalk.TimedOutError):
        queue.reserve(timeout=0)


def test_errors(queue: greenstalk.Client[str]) -> None:
    with pytest.raises(greenstalk.JobTooBigError):
        queue.put("x" * 65536)
    with pytest.raises(greenstalk.BadFormatError):
        queue.use("-bad")
    with pytest.raises(greenstalk.NotFoundError):
        queue.stats_tube("green.nosuch")
    queue.put("short", ttr=1)
    queue.reserve(timeout=0)
    with pytest.raises(greenstalk.DeadlineSoonError):
        queue.reserve()


def test_statistics(queue: greenstalk.Client[str]) -> None:
    stats = queue.stats()
    assert stats["max-job-size"] == 65535
    assert stats["current-connections"] == 1
    assert queue.stats_tube("default")["current-using"] == 0


def test_bodies_are_bytes(server: Server) -> None:
    everything = bytes(range(256)) * 10
    address = ("127.0.0.1", server.port)
    with greenstalk.Client(address, encoding=None, use=TUBE, watch=TUBE) as client:
        client.put(everything)
        assert client.reserve(timeout=0).body == everything
