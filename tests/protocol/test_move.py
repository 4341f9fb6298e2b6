"""move: a job to another tube, of the same worker or another one."""

from __future__ import annotations

import time

import pytest
from processes import eventually
from servers import reference
from wire import FENCE, FENCE_REPLY, Client, Connect, in_tube

BAD = b"BAD_FORMAT\r\n"
NOT_FOUND = b"NOT_FOUND\r\n"
UNKNOWN = b"UNKNOWN_COMMAND\r\n"
TARGETS = 4


@pytest.fixture(params=range(TARGETS))
def target(request: pytest.FixtureRequest, tube: bytes) -> bytes:
    """A tube, with several workers often of another one than `tube`."""
    return b"%b-%d" % (tube, request.param)


def move(client: Client, job: int, tube: bytes, pri: int = 7, delay: int = 0) -> int:
    reply = client.ask(b"move %d %b %d %d\r\n" % (job, tube, pri, delay))
    word, number = reply.split()
    assert word == b"MOVED"
    return int(number)


def body_of(client: Client, job: int) -> bytes:
    head, body, _ = client.ask(b"peek %d\r\n" % job).split(b"\r\n")
    assert head.startswith(b"FOUND %d " % job)
    return body


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        (b"move", UNKNOWN),
        (b"moved 1 t 0 0", UNKNOWN),
        (b"Move 1 t 0 0", UNKNOWN),
        (b"move ", BAD),
        (b"move 1", BAD),
        (b"move 1 t", BAD),
        (b"move 1 t 0", BAD),
        (b"move 1 t 0 0 ", BAD),
        (b"move 1 t 0 0 0", BAD),
        (b"move x t 0 0", BAD),
        (b"move 1t 0 0", BAD),
        (b"move 1 t0 0", BAD),
        (b"move -1 t 0 0", BAD),
        (b"move 1 -t 0 0", BAD),
        (b"move 1 t, 0 0", BAD),
        (b"move 1 t -1 0", BAD),
        (b"move 1 t 0 x", BAD),
        (b"move 1 t 4294967296 0", BAD),
        (b"move 1 t 0 4294967296", BAD),
        (b"move 18446744073709551616 t 0 0", BAD),
        (b"move 18446744073709551615 t 0 0", NOT_FOUND),
        (b"move 0 t 4294967295 4294967295", NOT_FOUND),
        (b"move  0  t  0  0", NOT_FOUND),
        (b"move 0 %b 0 0" % (b"t" * 200), NOT_FOUND),
        (b"move 0 %b 0 0" % (b"t" * 201), BAD),
    ],
)
def test_arguments(client: Client, line: bytes, reply: bytes) -> None:
    client.send(line + b"\r\n" + FENCE)
    assert client.replies(2) == [reply, FENCE_REPLY]


def test_beanstalkd_does_not_know_it() -> None:
    with reference() as server, server.connect() as client:
        assert client.ask(b"move 1 t 0 0\r\n") == UNKNOWN


def test_a_ready_job(client: Client, target: bytes) -> None:
    job = client.put(b"body", pri=3, ttr=90)
    moved = move(client, job, target, pri=5)
    assert moved > job
    assert client.ask(b"stats-job %d\r\n" % job) == NOT_FOUND
    stats = client.job_stats(moved)
    assert (stats["tube"], stats["state"]) == (f'"{target.decode()}"', "ready")
    assert (stats["pri"], stats["ttr"], stats["delay"]) == ("5", "90", "0")
    assert body_of(client, moved) == b"body"
    assert client.stats(b"stats-tube " + target)["current-jobs-ready"] == "1"
    client.ask(b"use " + target + b"\r\n")
    assert client.ask(b"peek-ready\r\n").startswith(b"FOUND %d " % moved)


def test_a_delay(client: Client, target: bytes) -> None:
    moved = move(client, client.put(), target, delay=77)
    stats = client.job_stats(moved)
    assert (stats["state"], stats["delay"]) == ("delayed", "77")


def test_delayed_and_buried_jobs(client: Client, target: bytes) -> None:
    delayed = client.put(delay=1000)
    assert client.job_stats(move(client, delayed, target))["state"] == "ready"
    buried = client.put()
    client.bury(buried)
    stats = client.job_stats(move(client, buried, target))
    assert (stats["state"], stats["reserves"], stats["buries"]) == ("ready", "1", "1")


def test_a_reserved_job_of_this_client(client: Client, connect: Connect, target: bytes) -> None:
    job = client.put()
    assert client.reserve() == job
    assert connect().ask(b"move %d %b 0 0\r\n" % (job, target)) == NOT_FOUND
    moved = move(client, job, target)
    assert client.job_stats(moved)["reserves"] == "1"
    assert client.ask(b"delete %d\r\n" % job) == NOT_FOUND
    assert client.ask(b"delete %d\r\n" % moved) == b"DELETED\r\n"


def test_it_keeps_the_age_and_the_counters(client: Client, target: bytes) -> None:
    job = client.put()
    for _ in range(2):
        client.reserve()
        assert client.ask(b"release %d 0 0\r\n" % job) == b"RELEASED\r\n"
    client.bury(job)
    assert client.ask(b"kick-job %d\r\n" % job) == b"KICKED\r\n"
    assert eventually(lambda: client.job_stats(job)["age"] == "1")
    stats = client.job_stats(move(client, job, target))
    counters = ("reserves", "timeouts", "releases", "buries", "kicks")
    assert [stats[name] for name in counters] == ["3", "0", "2", "1", "1"]
    assert int(stats["age"]) >= 1


def test_a_waiting_client_gets_it(client: Client, connect: Connect, target: bytes) -> None:
    waiter = in_tube(connect(), target)
    waiter.send(b"reserve\r\n")
    assert waiter.silent()
    moved = move(client, client.put(b"b"), target)
    assert waiter.reply() == b"RESERVED %d 1\r\nb\r\n" % moved


def test_a_wait_for_the_old_job_ends(client: Client, connect: Connect, target: bytes) -> None:
    job = client.put()
    waiter = connect()
    waiter.send(b"wait 10 %d\r\n" % job)
    assert waiter.silent()
    move(client, job, target)
    assert waiter.reply() == b"DELETED %d\r\n" % job


def test_within_its_tube(client: Client, tube: bytes) -> None:
    job = client.put(delay=1000)
    moved = move(client, job, tube, pri=1)
    assert client.reserve() == moved
    stats = client.stats(b"stats-tube " + tube)
    assert (stats["current-jobs-delayed"], stats["current-jobs-reserved"]) == ("0", "1")
    assert (stats["cmd-delete"], stats["total-jobs"]) == ("0", "2")


def test_large_bodies(client: Client, target: bytes) -> None:
    body = bytes(range(256)) * 255
    assert body_of(client, move(client, client.put(body), target)).startswith(bytes(range(10)))
    moved = move(client, client.put(body), target)
    assert client.ask(b"peek %d\r\n" % moved) == b"FOUND %d %d\r\n%b\r\n" % (moved, len(body), body)


def test_pipelined_moves_there_and_back(client: Client, tube: bytes, target: bytes) -> None:
    jobs = [client.put(b"%d" % number) for number in range(40)]
    client.send(b"".join(b"move %d %b 0 0\r\n" % (job, target) for job in jobs) + FENCE)
    *replies, fence = client.replies(len(jobs) + 1)
    assert fence == FENCE_REPLY
    moved = [int(reply.removeprefix(b"MOVED ")) for reply in replies]
    assert moved == sorted(moved)
    for job in moved:
        move(client, job, tube)
    assert client.stats(b"stats-tube " + tube)["current-jobs-ready"] == "40"
    bodies = set()
    for _ in jobs:
        client.send(b"reserve\r\n")
        bodies.add(client.reply().split(b"\r\n")[1])
    assert bodies == {b"%d" % number for number in range(40)}


def test_one_of_many_clients_moves_a_job(client: Client, connect: Connect, target: bytes) -> None:
    clients = [connect() for _ in range(8)]
    for number in range(20):
        job = client.put(b"%d" % number)
        for other in clients:
            other.send(b"move %d %b 0 0\r\n" % (job, target))
        replies = [other.reply() for other in clients]
        assert sum(reply.startswith(b"MOVED ") for reply in replies) == 1
        assert replies.count(NOT_FOUND) == len(clients) - 1
    assert client.stats(b"stats-tube " + target)["current-jobs-ready"] == "20"


def test_a_client_that_leaves_moves_its_job_or_not(
    client: Client, connect: Connect, tube: bytes, target: bytes
) -> None:
    jobs = [client.put() for _ in range(20)]
    for job in jobs:
        with connect() as other:
            other.send(b"move %d %b 0 0\r\n" % (job, target))
    end = time.monotonic() + 5

    def ready(name: bytes) -> int:
        reply = client.ask(b"stats-tube " + name + b"\r\n")
        if reply == NOT_FOUND:
            return 0
        return int(reply.split(b"current-jobs-ready: ")[1].split(b"\n")[0])

    while (counts := (ready(tube), ready(target))) and sum(counts) != len(jobs):
        assert time.monotonic() < end, counts
    time.sleep(0.05)
    assert ready(tube) + ready(target) == len(jobs)


def test_a_key_is_free_after_a_move(client: Client, target: bytes) -> None:
    put = b"with unique=k window=100\r\nput 0 0 100 1\r\nx\r\n"
    client.send(put)
    _, inserted = client.replies(2)
    move(client, int(inserted.split()[1]), target)
    client.send(put)
    assert client.replies(2)[1] != inserted


def test_moves_do_not_count_as_commands(client: Client, target: bytes) -> None:
    job = client.put()
    before = client.stats()
    move(client, job, target)
    after = client.stats()
    changed = {name for name in before if name.startswith("cmd-") and before[name] != after[name]}
    assert changed == {"cmd-stats"}
