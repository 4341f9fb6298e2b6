"""`wait`: a client waits until a job ends or is buried."""

from __future__ import annotations

import time

import pytest
from wire import FENCE, FENCE_REPLY, Client, Connect

TIMED_OUT = b"TIMED_OUT\r\n"
NOT_FOUND = b"NOT_FOUND\r\n"
SOON = b"DEADLINE_SOON\r\n"


def wait_line(job: int, seconds: int = 100) -> bytes:
    return b"wait %d %d\r\n" % (seconds, job)


def waits(client: Client, job: int, seconds: int = 100) -> None:
    """Send a wait that gets no reply yet."""
    client.send(wait_line(job, seconds))
    assert client.silent()


def ended(job: int) -> bytes:
    return b"DELETED %d\r\n" % job


def buried(job: int) -> bytes:
    return b"BURIED %d\r\n" % job


@pytest.mark.parametrize("delay", [0, 100])
def test_it_ends_with_the_job(connect: Connect, client: Client, delay: int) -> None:
    job = client.put(delay=delay)
    waiter = connect()
    waits(waiter, job)
    assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
    assert waiter.reply() == ended(job)
    assert waiter.ask(wait_line(job)) == NOT_FOUND


def test_only_the_end_of_the_job_ends_it(connect: Connect, client: Client) -> None:
    job = client.put(ttr=100)
    waiter = connect()
    waits(waiter, job)
    client.reserve()
    assert client.ask(b"touch %d\r\n" % job) == b"TOUCHED\r\n"
    assert client.ask(b"release %d 0 100\r\n" % job) == b"RELEASED\r\n"
    assert client.ask(b"kick-job %d\r\n" % job) == b"KICKED\r\n"
    client.reserve()
    assert waiter.silent(0.1)
    assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
    assert waiter.reply() == ended(job)


def test_it_ends_when_the_job_is_buried(connect: Connect, client: Client) -> None:
    job = client.put()
    waiter = connect()
    waits(waiter, job)
    client.bury(job)
    assert waiter.reply() == buried(job)
    assert waiter.ask(wait_line(job)) == buried(job)
    assert waiter.ask(wait_line(job, 0)) == buried(job)
    assert client.ask(b"kick-job %d\r\n" % job) == b"KICKED\r\n"
    waits(waiter, job)
    assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
    assert waiter.reply() == ended(job)


def test_it_ends_with_a_truncated_tube(connect: Connect, client: Client, tube: bytes) -> None:
    jobs = [client.put() for _ in range(3)]
    waiters = [connect() for _ in jobs]
    for waiter, job in zip(waiters, jobs, strict=True):
        waits(waiter, job)
    assert client.ask(b"truncate %b\r\n" % tube) == b"TRUNCATED 3\r\n"
    assert [waiter.reply() for waiter in waiters] == [ended(job) for job in jobs]


def test_it_ends_with_its_time(client: Client) -> None:
    job = client.put()
    assert client.ask(wait_line(job, 0)) == TIMED_OUT
    start = time.monotonic()
    assert client.ask(wait_line(job, 1)) == TIMED_OUT
    assert 0.9 < time.monotonic() - start < 2


@pytest.mark.parametrize("seconds", [0, 100])
def test_a_job_that_does_not_exist_is_not_found(client: Client, seconds: int) -> None:
    for job in (0, 2**63, 2**64 - 1, client.put() + 1_000_000):
        assert client.ask(wait_line(job, seconds)) == NOT_FOUND


def test_many_wait_for_one_job_and_one_for_each_of_many(connect: Connect, client: Client) -> None:
    jobs = [client.put() for _ in range(20)]
    many = [connect() for _ in range(300)]
    each = [connect() for _ in jobs]
    for waiter in many:
        waiter.send(wait_line(jobs[7]))
    for waiter, job in zip(each, jobs, strict=True):
        waiter.send(wait_line(job))
    assert all(waiter.silent(0.001) for waiter in [*many, *each])
    client.send(b"delete %d\r\n" % jobs[7])
    assert all(waiter.reply() == ended(jobs[7]) for waiter in [*many, each[7]])
    assert client.reply() == b"DELETED\r\n"
    for number, job in enumerate(jobs):
        if number != 7:
            assert each[number].silent(0.001)
            assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
            assert each[number].reply() == ended(job)


def test_those_that_leave_take_their_waits_along(connect: Connect, client: Client) -> None:
    job = client.put()
    for close in (True, False):
        leaving = [connect() for _ in range(3)]
        stays = connect()
        for waiter in [leaving[0], stays, *leaving[1:]]:
            waits(waiter, job, 100)
        for waiter in leaving:
            if close:
                waiter.close()
            else:
                waiter.half_close()
                assert waiter.read_to_end() == TIMED_OUT
    client.ask(FENCE)
    assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
    assert stays.reply() == ended(job)


def test_a_closed_sending_side_still_gets_what_is_known(client: Client) -> None:
    job = client.put()
    other = client.put()
    client.bury(other)
    client.send(wait_line(other) + wait_line(job) + wait_line(2**63))
    client.half_close()
    assert client.read_to_end() == buried(other) + TIMED_OUT + NOT_FOUND


def test_later_commands_wait_for_it(connect: Connect, client: Client) -> None:
    job = client.put()
    waiter = connect()
    waiter.send(FENCE + wait_line(job) + wait_line(job) + FENCE)
    assert waiter.reply() == FENCE_REPLY
    assert waiter.silent()
    assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
    assert waiter.replies(3) == [ended(job), NOT_FOUND, FENCE_REPLY]


def test_a_held_job_that_times_out_soon_ends_it(
    connect: Connect, client: Client, tube: bytes
) -> None:
    job = client.put()
    for place in (b"", b".other", b".third"):
        client.ask(b"use %b%b\r\n" % (tube, place))
        held = client.put(ttr=2)
        waiter = connect()
        assert waiter.ask(b"reserve-job %d\r\n" % held).startswith(b"RESERVED")
        start = time.monotonic()
        waits(waiter, job)
        assert waiter.reply() == SOON
        assert 0.5 < time.monotonic() - start < 1.5
        assert waiter.ask(wait_line(job)) == SOON
        assert waiter.ask(wait_line(job, 0)) == SOON
        assert waiter.ask(wait_line(2**63)) == NOT_FOUND
        assert waiter.ask(b"delete %d\r\n" % held) == b"DELETED\r\n"
        assert waiter.ask(wait_line(job, 0)) == TIMED_OUT


def test_it_counts_nowhere(connect: Connect, client: Client, tube: bytes) -> None:
    job = client.put()
    waiter = connect()
    before = client.stats()
    waits(waiter, job)
    during = client.stats()
    for key in ("current-waiting", "current-workers", "current-producers", "cmd-reserve"):
        assert during[key] == before[key]
    assert client.stats(b"stats-tube " + tube)["current-waiting"] == "0"


def test_a_client_that_waits_for_a_job_gets_none(connect: Connect, client: Client) -> None:
    job = client.put()
    waiter = connect()
    assert waiter.ask(b"watch default\r\n") == b"WATCHING 1\r\n"
    waits(waiter, job)
    client.ask(b"use default\r\n")
    other = client.put()
    assert waiter.silent(0.1)
    assert client.ask(b"delete %d\r\ndelete %d\r\n" % (other, job)) == b"DELETED\r\n"
    assert client.reply() == b"DELETED\r\n"
    assert waiter.reply() == ended(job)
