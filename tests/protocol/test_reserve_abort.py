"""`reserve-abort`: a client ends its own wait."""

from __future__ import annotations

import pytest
from wire import FENCE, FENCE_REPLY, Client, Connect, in_tube

ABORT = b"reserve-abort\r\n"
ABORTED = b"ABORTED\r\n"
TIMED_OUT = b"TIMED_OUT\r\n"
RESERVES = [b"reserve\r\n", b"reserve-with-timeout 100\r\n", b"reserve-batch 3 100\r\n"]


@pytest.fixture(params=["its own tube", "another tube", "several tubes"])
def waiter(request: pytest.FixtureRequest, connect: Connect, tube: bytes) -> Client:
    """A client at any worker that watches tubes of any."""
    client = in_tube(connect(), tube)
    if request.param != "its own tube":
        for number in range(3 if request.param == "several tubes" else 1):
            assert client.ask(b"watch %b.%d\r\n" % (tube, number)).startswith(b"WATCHING")
    if request.param == "another tube":
        assert client.ask(b"ignore %b\r\n" % tube) == b"WATCHING 1\r\n"
    return client


def test_without_a_wait_there_is_nothing_to_end(client: Client) -> None:
    assert client.ask(ABORT) == ABORTED
    client.send(ABORT * 3 + FENCE)
    assert client.replies(4) == [ABORTED] * 3 + [FENCE_REPLY]


@pytest.mark.parametrize("line", RESERVES)
@pytest.mark.parametrize("cuts", [[], [7], [14], [1, 13]])
def test_it_ends_a_reserve(waiter: Client, line: bytes, cuts: list[int]) -> None:
    for _ in range(3):
        waiter.send(line)
        assert waiter.silent()
        for start, end in zip([0, *cuts], [*cuts, len(ABORT)], strict=True):
            assert waiter.silent(0.01)
            waiter.send(ABORT[start:end])
        assert waiter.replies(2) == [TIMED_OUT, ABORTED]
    assert waiter.ask(FENCE) == FENCE_REPLY


@pytest.mark.parametrize("line", RESERVES)
@pytest.mark.parametrize("cut", [3, 9, 16, 20])
def test_it_may_be_sent_with_the_reserve(waiter: Client, line: bytes, cut: int) -> None:
    waiter.send(line + ABORT + FENCE)
    assert waiter.replies(3) == [TIMED_OUT, ABORTED, FENCE_REPLY]
    waiter.send((line + ABORT)[:cut])
    waiter.silent(0.02)
    waiter.send((line + ABORT)[cut:])
    assert waiter.replies(2) == [TIMED_OUT, ABORTED]
    waiter.send(line + ABORT + line + ABORT + ABORT)
    assert waiter.replies(5) == [TIMED_OUT, ABORTED, TIMED_OUT, ABORTED, ABORTED]


def test_it_ends_a_wait_for_a_job(waiter: Client, client: Client) -> None:
    job = client.put()
    waiter.send(b"wait 100 %d\r\n" % job)
    assert waiter.silent()
    waiter.send(ABORT)
    assert waiter.replies(2) == [TIMED_OUT, ABORTED]
    waiter.send(b"wait 100 %d\r\n" % job + ABORT)
    assert waiter.replies(2) == [TIMED_OUT, ABORTED]
    assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
    assert waiter.silent()


@pytest.mark.parametrize("first", [FENCE, b"reserve-abortx\r\n", b" reserve-abort\r\n"])
def test_only_the_next_line_is_looked_at(waiter: Client, client: Client, first: bytes) -> None:
    waiter.send(b"reserve\r\n" + first + ABORT)
    assert waiter.silent()
    waiter.send(ABORT)
    assert waiter.silent()
    job = put_for(waiter, client)
    replies = waiter.replies(4)
    assert replies[0].startswith(b"RESERVED %d " % job)
    assert replies[2:] == [ABORTED] * 2


def put_for(waiter: Client, client: Client) -> int:
    """Put a job into a tube that the waiter watches."""
    name = client.ask(b"list-tube-used\r\n").split()[1]
    for tube in (b"%b.0" % name, name):
        client.ask(b"use %b\r\n" % tube)
        watched = client.stats(b"stats-tube %b" % tube)["current-watching"]
        if watched != "0":
            return client.put()
    raise AssertionError("no tube is watched")


def test_a_job_is_reserved_or_left(waiter: Client, client: Client) -> None:
    """Puts and aborts at the same time: the reply shows who has the job."""
    job = put_for(waiter, client)
    assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
    for _ in range(50):
        waiter.send(b"reserve\r\n")
        client.send(b"put 0 0 100 1\r\nx\r\n")
        waiter.send(ABORT)
        job = int(client.reply().split()[1])
        reply, then = waiter.replies(2)
        assert then == ABORTED
        assert reply == TIMED_OUT or reply.startswith(b"RESERVED %d " % job)
        state = client.job_stats(job)["state"]
        assert state == ("ready" if reply == TIMED_OUT else "reserved")
        deleter = client if reply == TIMED_OUT else waiter
        assert deleter.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"


def test_a_client_that_has_aborted_is_not_served(
    connect: Connect, waiter: Client, client: Client
) -> None:
    waiter.send(b"reserve\r\n" + ABORT)
    assert waiter.replies(2) == [TIMED_OUT, ABORTED]
    job = put_for(waiter, client)
    assert waiter.silent()
    assert client.job_stats(job)["reserves"] == "0"
    assert client.stats()["current-waiting"] == "0"


def test_it_counts_nowhere(client: Client) -> None:
    before = client.stats()
    client.send(b"reserve\r\n" + ABORT)
    client.replies(2)
    after = client.stats()
    assert int(after["cmd-reserve"]) == int(before["cmd-reserve"]) + 1
    assert int(after["cmd-reserve-with-timeout"]) == int(before["cmd-reserve-with-timeout"])
