"""`reserve-batch`: several jobs by one command."""

from __future__ import annotations

import time

import pytest
from wire import CRLF, FENCE, FENCE_REPLY, BatchJob, Client, Connect, in_tube, jobs_of, wait_for

TIMED_OUT = b"TIMED_OUT\r\n"
SOON = b"DEADLINE_SOON\r\n"


def batch_line(most: int, seconds: int = 0) -> bytes:
    return b"reserve-batch %d %d\r\n" % (most, seconds)


def batch(client: Client, most: int = 1000, seconds: int = 0) -> list[BatchJob]:
    return jobs_of(client.ask(batch_line(most, seconds)))


@pytest.fixture
def consumer(connect: Connect, tube: bytes) -> Client:
    return in_tube(connect(), tube)


def test_it_reserves_what_is_ready_in_order(client: Client, consumer: Client, tube: bytes) -> None:
    bodies = [b"", b"a", b"\r\n", b"BATCH 9\r\nJOB 1 t 1\r\n", b"x" * 5000, b"last"]
    ids = [client.put(body, pri=pri) for pri, body in zip([5, 4, 4, 9, 1, 5], bodies, strict=True)]
    client.put(delay=100)
    order = [4, 1, 2, 0, 5, 3]
    expected = [BatchJob(ids[n], tube, bodies[n]) for n in order]
    assert batch(consumer) == expected
    for job in ids:
        stats = client.job_stats(job)
        assert (stats["state"], stats["reserves"]) == ("reserved", "1")
    assert consumer.ask(batch_line(10)) == TIMED_OUT
    for job in ids:
        assert consumer.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"


@pytest.mark.parametrize("most", [1, 2, 3, 7, 8, 1000])
def test_it_reserves_at_most_so_many(client: Client, consumer: Client, most: int) -> None:
    ids = [client.put() for _ in range(7)]
    assert [job.id for job in batch(consumer, most)] == ids[:most]
    rest = consumer.ask(batch_line(1000))
    assert [job.id for job in jobs_of(rest)] == ids[most:] if most < 7 else rest == TIMED_OUT


def test_the_first_jobs_of_many(client: Client, consumer: Client) -> None:
    client.send(b"put 0 0 100 1\r\nx\r\n" * 1500)
    ids = [int(reply.split()[1]) for reply in client.replies(1500)]
    assert [job.id for job in batch(consumer)] == ids[:1000]
    assert [job.id for job in batch(consumer)] == ids[1000:]


@pytest.mark.parametrize("place", [b"", b".other", b".third"])
def test_it_waits_for_the_first(
    connect: Connect, client: Client, tube: bytes, place: bytes
) -> None:
    name = tube + place
    consumer = in_tube(connect(), name)
    assert consumer.ask(b"watch default\r\n") == b"WATCHING 2\r\n"
    consumer.send(batch_line(10, 100))
    assert consumer.silent()
    client.ask(b"use %b\r\n" % name)
    job = client.put(b"body")
    assert jobs_of(consumer.reply()) == [BatchJob(job, name, b"body")]
    assert consumer.ask(batch_line(10, 0)) == TIMED_OUT
    start = time.monotonic()
    assert consumer.ask(batch_line(10, 1)) == TIMED_OUT
    assert 0.9 < time.monotonic() - start < 2


def test_it_gets_all_jobs_at_the_end_of_a_pause(
    client: Client, consumer: Client, tube: bytes
) -> None:
    assert client.ask(b"pause-tube %b 100\r\n" % tube) == b"PAUSED\r\n"
    ids = [client.put() for _ in range(5)]
    consumer.send(batch_line(4, 100))
    assert consumer.silent()
    assert client.ask(b"pause-tube %b 0\r\n" % tube) == b"PAUSED\r\n"
    assert [job.id for job in jobs_of(consumer.reply())] == ids[:4]


def test_a_batch_has_jobs_of_all_watched_tubes_sooner_or_later(
    connect: Connect, client: Client, tube: bytes
) -> None:
    names = [b"%b.%d" % (tube, number) for number in range(4)]
    consumer = in_tube(connect(), names[0])
    for name in names[1:]:
        consumer.ask(b"watch %b\r\n" % name)
    expected = set()
    for number in range(40):
        client.ask(b"use %b\r\n" % names[number % 4])
        expected.add(BatchJob(client.put(pri=number % 3), names[number % 4], b"x"))
    got: list[BatchJob] = []
    while (reply := consumer.ask(batch_line(12))) != TIMED_OUT:
        found = jobs_of(reply)
        assert len(found) <= 12
        got += found
    assert set(got) == expected
    assert len(got) == 40
    pris = {job.id: int(client.job_stats(job.id)["pri"]) for job in got}
    assert [pris[job.id] for job in got] == sorted(pris.values())


def test_the_output_limit_bounds_a_batch(client: Client, consumer: Client) -> None:
    """The default is 1 MiB; a batch has at least one job."""
    body = b"x" * 60_000
    ids = [client.put(body) for _ in range(40)]
    got = []
    while (reply := consumer.ask(batch_line(1000))) != TIMED_OUT:
        assert len(reply) <= 1 << 20
        found = jobs_of(reply)
        assert all(job.body == body for job in found)
        got += [job.id for job in found]
    assert got == ids
    assert len(found) < 40


def test_a_job_that_times_out_soon_matters_before_the_first_only(
    client: Client, consumer: Client
) -> None:
    first = client.put(ttr=1)
    assert [job.id for job in batch(consumer, 5)] == [first]
    assert consumer.ask(batch_line(5, 9)) == SOON
    job = client.put()
    assert [job.id for job in batch(consumer, 5)] == [job]
    assert consumer.ask(batch_line(5, 0)) == SOON


def test_a_closed_connection_returns_its_jobs(
    connect: Connect, client: Client, tube: bytes
) -> None:
    ids = [client.put() for _ in range(5)]
    consumer = in_tube(connect(), tube)
    assert len(batch(consumer)) == 5
    consumer.close()
    wait_for(client, tube, "current-jobs-ready", 5)
    other = in_tube(connect(), tube)
    assert [job.id for job in batch(other)] == ids


def test_it_counts_as_a_reserve_without_a_counter(client: Client, consumer: Client) -> None:
    before = client.stats()
    consumer.send(batch_line(3, 100))
    assert consumer.silent()
    during = client.stats()
    assert int(during["current-waiting"]) == int(before["current-waiting"]) + 1
    assert int(during["current-workers"]) == int(before["current-workers"]) + 1
    client.put()
    consumer.reply()
    after = client.stats()
    for key in ("cmd-reserve", "cmd-reserve-with-timeout"):
        assert after[key] == before[key]


def test_replies_keep_the_order_of_commands(client: Client, consumer: Client) -> None:
    ids = [client.put() for _ in range(5)]
    consumer.send(FENCE + batch_line(2) + b"reserve\r\n" + batch_line(9) + batch_line(9) + FENCE)
    replies = consumer.replies(6)
    assert replies[0] == replies[5] == FENCE_REPLY
    assert [job.id for job in jobs_of(replies[1])] == ids[:2]
    assert replies[2] == b"RESERVED %d 1\r\nx\r\n" % ids[2]
    assert [job.id for job in jobs_of(replies[3])] == ids[3:]
    assert replies[4] == TIMED_OUT


def test_many_consumers_get_each_job_once(connect: Connect, client: Client, tube: bytes) -> None:
    consumers = [in_tube(connect(), tube) for _ in range(4)]
    for consumer in consumers:
        consumer.ask(b"watch %b.more\r\n" % tube)
    client.send(b"".join(b"put %d 0 100 1\r\nx\r\n" % (n % 7) for n in range(200)))
    ids = {int(reply.split()[1]) for reply in client.replies(200)}
    client.ask(b"use %b.more\r\n" % tube)
    client.send(b"".join(b"put %d 0 100 1\r\nx\r\n" % (n % 7) for n in range(200)))
    ids |= {int(reply.split()[1]) for reply in client.replies(200)}
    got: list[int] = []
    busy = consumers
    while busy:
        for consumer in busy:
            consumer.send(batch_line(9))
        replies = [(consumer, consumer.reply()) for consumer in busy]
        got += [job.id for _, reply in replies if reply != TIMED_OUT for job in jobs_of(reply)]
        busy = [consumer for consumer, reply in replies if reply != TIMED_OUT]
    assert len(got) == len(ids) and set(got) == ids


def test_the_longest_name(connect: Connect, client: Client) -> None:
    name = b"n" * 200
    consumer = in_tube(connect(), name)
    assert client.ask(b"use %b\r\n" % name).endswith(CRLF)
    job = client.put(b"y" * 65535)
    assert batch(consumer) == [BatchJob(job, name, b"y" * 65535)]
    assert consumer.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
