"""A client that closes its sending side still gets all its replies; then the server closes."""

from __future__ import annotations

import pytest
from wire import Client, Connect, in_tube, wait_for


@pytest.mark.parametrize("command", [b"reserve\r\n", b"reserve-with-timeout 1000\r\n"])
def test_a_waiting_reserve_is_answered_timed_out(
    connect: Connect, client: Client, tube: bytes, command: bytes
) -> None:
    waiter = in_tube(connect(), tube)
    waiter.send(command)
    wait_for(client, tube, "current-waiting", 1)
    waiter.half_close()
    assert waiter.read_to_end() == b"TIMED_OUT\r\n"
    wait_for(client, tube, "current-waiting", 0)
    assert client.put() == client.reserve()


def test_received_commands_are_executed(connect: Connect, client: Client, tube: bytes) -> None:
    sender = in_tube(connect(), tube)
    sender.send(b"put 0 0 100 1\r\na\r\n" * 50 + b"list-tube-used\r\nnosuch\r\nlist-tub")
    sender.half_close()
    replies = sender.read_to_end().split(b"\r\n")
    assert [reply.split()[0] for reply in replies[:50]] == [b"INSERTED"] * 50
    assert replies[50:] == [b"USING " + tube, b"UNKNOWN_COMMAND", b""]
    assert client.stats(b"stats-tube " + tube)["current-jobs-ready"] == "50"


def test_commands_after_a_waiting_reserve_are_executed(
    connect: Connect, client: Client, tube: bytes
) -> None:
    sender = in_tube(connect(), tube)
    sender.send(b"reserve\r\nput 0 0 100 1\r\na\r\nreserve\r\nnosuch\r\n")
    sender.half_close()
    replies = sender.read_to_end().split(b"\r\n")
    assert replies[0] == b"TIMED_OUT"
    job = replies[1].removeprefix(b"INSERTED ")
    assert replies[2:] == [b"RESERVED %b 1" % job, b"a", b"UNKNOWN_COMMAND", b""]
    wait_for(client, tube, "current-jobs-ready", 1)
    assert client.job_stats(int(job))["reserves"] == "1"


def test_its_jobs_become_ready_after_the_last_reply(
    connect: Connect, client: Client, tube: bytes
) -> None:
    holder = in_tube(connect(), tube)
    job = client.put()
    holder.send(b"reserve\r\n")
    holder.half_close()
    assert holder.read_to_end() == b"RESERVED %d 1\r\nx\r\n" % job
    wait_for(client, tube, "current-jobs-ready", 1)


def test_nothing_sent_nothing_replied(connect: Connect) -> None:
    silent = connect()
    silent.half_close()
    assert silent.read_to_end() == b""
