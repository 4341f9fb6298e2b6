"""Reserving: the choice of the job, the tubes, and the client that gets it."""

from __future__ import annotations

import pytest
from wire import Client, Connect, in_tube, wait_for

TIMED_OUT = b"TIMED_OUT\r\n"
NOT_FOUND = b"NOT_FOUND\r\n"


def reserved(job: int, body: bytes = b"x") -> bytes:
    """Return the RESERVED reply with this job."""
    return b"RESERVED %d %d\r\n%b\r\n" % (job, len(body), body)


def test_the_smallest_priority_then_the_smallest_id(client: Client) -> None:
    priorities = [2**32 - 1, 1024, 1023, 5, 5, 0, 5, 0]
    jobs = [(pri, client.put(pri=pri)) for pri in priorities]
    assert [client.reserve() for _ in jobs] == [job for _, job in sorted(jobs)]
    assert client.ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT


def test_the_order_holds_over_all_watched_tubes(client: Client, tube: bytes) -> None:
    jobs = []
    for number, pri in enumerate([3, 1, 2, 1, 3, 0, 2]):
        name = b"%b.%d" % (tube, number % 3)
        client.send(b"use %b\r\nwatch %b\r\n" % (name, name))
        client.replies(2)
        jobs.append((pri, client.put(pri=pri)))
    assert [client.reserve() for _ in jobs] == [job for _, job in sorted(jobs)]


def test_the_order_holds_after_deletes_in_the_middle(client: Client) -> None:
    jobs = [(pri, client.put(pri=pri)) for pri in [7, 3, 9, 1, 8, 2, 6, 4, 0, 5]]
    for _, job in jobs[1::2]:
        assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
    assert [client.reserve() for _ in range(5)] == [job for _, job in sorted(jobs[0::2])]


def test_only_watched_tubes_count(connect: Connect, client: Client, tube: bytes) -> None:
    other = connect()
    assert other.ask(b"use %b.not\r\n" % tube) == b"USING %b.not\r\n" % tube
    other.put()
    assert client.ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT


@pytest.mark.parametrize("command", [b"reserve\r\n", b"reserve-with-timeout 100\r\n"])
def test_a_waiting_client_gets_the_next_job(
    connect: Connect, client: Client, tube: bytes, command: bytes
) -> None:
    waiter = in_tube(connect(), tube)
    waiter.send(command)
    assert waiter.silent()
    job = client.put()
    assert waiter.reply() == reserved(job)
    assert client.job_stats(job)["state"] == "reserved"


def test_the_longest_waiting_client_is_served_first(
    connect: Connect, client: Client, tube: bytes
) -> None:
    """C beanstalkd serves four waiters in the order 1, 2, 4, 3."""
    waiters = [in_tube(connect(), tube) for _ in range(4)]
    for waiting, waiter in enumerate(waiters, start=1):
        waiter.send(b"reserve\r\n")
        wait_for(client, tube, "current-waiting", waiting)
    for waiter in waiters:
        job = client.put()
        assert waiter.reply() == reserved(job)
        assert not any(other.ready_replies() for other in waiters)


def test_a_timeout_and_a_new_wait_go_to_the_end_of_the_queue(
    connect: Connect, client: Client, tube: bytes
) -> None:
    """Waiting is counted from the command, not from the connection."""
    first, second = (in_tube(connect(), tube) for _ in range(2))
    assert first.ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT
    second.send(b"reserve\r\n")
    wait_for(client, tube, "current-waiting", 1)
    first.send(b"reserve\r\n")
    wait_for(client, tube, "current-waiting", 2)
    for waiter in (second, first):
        job = client.put()
        assert waiter.reply() == reserved(job)


@pytest.mark.parametrize(
    "make_ready",
    [
        b"release {} 0 0\r\n",
        b"bury {} 0\r\nkick 1\r\n",
        b"bury {} 0\r\nkick-job {}\r\n",
        b"release {} 0 100\r\nkick 1\r\n",
        b"release {} 0 100\r\nkick-job {}\r\n",
        b"quit\r\n",
    ],
)
def test_a_waiting_client_gets_a_job_that_becomes_ready_again(
    connect: Connect, client: Client, tube: bytes, make_ready: bytes
) -> None:
    job = client.put()
    assert client.reserve() == job
    waiter = in_tube(connect(), tube)
    waiter.send(b"reserve\r\n")
    assert waiter.silent()
    client.send(make_ready.replace(b"{}", b"%d" % job))
    assert waiter.reply() == reserved(job)


def test_a_client_waiting_on_several_tubes_gets_one_job_only(
    connect: Connect, client: Client, tube: bytes
) -> None:
    waiter = in_tube(connect(), tube)
    assert waiter.ask(b"watch %b.b\r\n" % tube) == b"WATCHING 2\r\n"
    waiter.send(b"reserve\r\n")
    assert waiter.silent()
    client.send(
        b"put 0 0 100 1\r\na\r\nuse %b.b\r\nput 0 0 100 1\r\nb\r\n" % tube + b"peek-ready\r\n"
    )
    first = client.reply()
    assert client.replies(3)[2].endswith(b"\r\nb\r\n")
    assert waiter.reply() == reserved(int(first.split()[1]), b"a")
    for name in (tube, tube + b".b"):
        assert client.stats(b"stats-tube " + name)["current-waiting"] == "0"


@pytest.mark.parametrize("state", ["ready", "delayed", "buried"])
@pytest.mark.parametrize("where", ["watched", "elsewhere", "paused"])
def test_reserve_job_takes_a_job_in_any_state_but_reserved(
    connect: Connect, client: Client, tube: bytes, state: str, where: str
) -> None:
    job = client.put(delay=100 if state == "delayed" else 0)
    if state == "buried":
        client.bury(job)
    if where == "paused":
        assert client.ask(b"pause-tube %b 100\r\n" % tube) == b"PAUSED\r\n"
    taker = connect() if where == "elsewhere" else client
    assert client.job_stats(job)["state"] == state
    command = b"reserve-job %d\r\n" % job
    assert taker.ask(command) == reserved(job)
    assert taker.ask(command) == NOT_FOUND
    assert connect().ask(command) == NOT_FOUND
    stats = client.job_stats(job)
    assert stats["state"] == "reserved"
    assert stats["reserves"] == ("2" if state == "buried" else "1")
    assert taker.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"


def test_the_jobs_of_a_closed_connection_become_ready_and_nothing_else(
    connect: Connect, client: Client, tube: bytes
) -> None:
    holder = in_tube(connect(), tube)
    jobs = [client.put(b"x", pri) for pri in (4, 2, 3)]
    before = [client.job_stats(job) for job in jobs]
    assert [holder.reserve() for _ in jobs] == [jobs[1], jobs[2], jobs[0]]
    holder.close()
    wait_for(client, tube, "current-jobs-ready", 3)
    for job, old in zip(jobs, before, strict=True):
        assert client.job_stats(job) == old | {"reserves": "1"}
    assert client.stats(b"stats-tube " + tube)["current-jobs-reserved"] == "0"
    assert [client.reserve() for _ in jobs] == [jobs[1], jobs[2], jobs[0]]


@pytest.mark.parametrize("touched", [False, True])
@pytest.mark.parametrize("first_ttr", [100, 300])
def test_the_jobs_of_a_closed_connection_come_back_in_the_order_of_reserving(
    connect: Connect, client: Client, tube: bytes, first_ttr: int, touched: bool
) -> None:
    """A waiting client gets the first one; priority, deadline and touch make no difference."""
    holder, waiter = (in_tube(connect(), tube) for _ in range(2))
    jobs = [client.put(pri=2, ttr=first_ttr), client.put(pri=1, ttr=200)]
    for job in jobs:
        assert holder.ask(b"reserve-job %d\r\n" % job) == reserved(job)
    if touched:
        assert holder.ask(b"touch %d\r\n" % jobs[0]) == b"TOUCHED\r\n"
    waiter.send(b"reserve\r\n")
    wait_for(client, tube, "current-waiting", 1)
    holder.close()
    assert waiter.reply() == reserved(jobs[0])


def test_statistics_of_a_tube_and_later_commands_see_no_closed_connection(
    connect: Connect, client: Client, tube: bytes
) -> None:
    for _ in range(50):
        job = client.put()
        holder = in_tube(connect(), tube)
        assert holder.reserve() == job
        holder.close()
        assert client.stats(b"stats-tube " + tube)["current-jobs-reserved"] == "0"
        assert client.ask(b"reserve-with-timeout 0\r\n") == reserved(job)
        assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"


def test_a_closed_waiting_client_gets_no_job(connect: Connect, client: Client, tube: bytes) -> None:
    waiter = in_tube(connect(), tube)
    waiter.send(b"reserve\r\n")
    wait_for(client, tube, "current-waiting", 1)
    waiter.close()
    wait_for(client, tube, "current-waiting", 0)
    assert client.put() == client.reserve()


@pytest.mark.parametrize(
    ("command", "worker"),
    [
        (b"reserve-with-timeout 0\r\n", 1),
        (b"reserve-job %(job)d\r\n", 1),
        (b"reserve-job 0\r\n", 0),
        (b"reserve x\r\n", 0),
        (b"reserve-job x\r\n", 0),
        (b"peek-ready\r\n", 0),
    ],
)
def test_a_client_that_reserves_is_a_worker(
    connect: Connect, client: Client, tube: bytes, command: bytes, worker: int
) -> None:
    """A reserve-job counts when it finds its job."""
    before = int(client.stats()["current-workers"])
    other = in_tube(connect(), tube)
    job = client.put()
    for _ in range(2):
        other.ask(command.replace(b"%(job)d", b"%d" % job))
    assert int(client.stats()["current-workers"]) == before + worker
