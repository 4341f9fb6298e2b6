"""`reserve-batch` over tubes of several workers: whose jobs a batch has."""

from __future__ import annotations

from itertools import product

import pytest
from core.workers.cluster import Cluster
from wire import jobs_of

CASES = [*product(range(3), range(2), range(2))]


@pytest.mark.parametrize(("home", "first", "second"), CASES)
def test_a_batch_ends_before_a_job_behind_one_of_another_worker(
    home: int, first: int, second: int
) -> None:
    with Cluster(3) as cluster:
        client, putter = cluster.client(home), cluster.client(0)
        names = [cluster.tube_on(0), cluster.tube_on(1)]
        client.ask(b"watch %b\r\nwatch %b\r\nignore default\r\n" % (names[0], names[1]))
        here, there = names[first], names[1 - first]
        # The other worker's job is better than two, as good as one, and worse than one.
        jobs = [putter.put(pri=pri, tube=here) for pri in (0, 5, 3, 4)]
        other = putter.put(pri=3, tube=there)
        if second:
            putter.do(b"delete %d" % other, b"DELETED")
        expected = [jobs[0], jobs[2], jobs[3], jobs[1]] if second else [jobs[0], jobs[2]]
        got = jobs_of(client.ask(b"reserve-batch 9 0\r\n"))
        assert [(job.id, job.tube) for job in got] == [(job, here) for job in expected]


@pytest.mark.parametrize("home", range(3))
def test_a_waiting_batch_takes_no_job_of_those_that_wait_behind_it(home: int) -> None:
    with Cluster(3) as cluster:
        client, putter = cluster.client(home), cluster.client(0)
        names = [cluster.tube_on(0), cluster.tube_on(1)]
        client.ask(b"watch %b\r\nwatch %b\r\nignore default\r\n" % (names[0], names[1]))
        plain = cluster.client(1)
        plain.ask(b"watch %b\r\nignore default\r\n" % names[1])
        client.send(b"reserve-batch 9 100\r\n")
        plain.send(b"reserve\r\n")
        putter.ask(b"use %b\r\n" % names[1])
        replies = putter.ask(b"put 0 0 100 1\r\nx\r\n" * 2)
        first, second = (int(line.split()[1]) for line in replies.splitlines())
        assert [job.id for job in jobs_of(client.read())] == [first]
        assert plain.read() == b"RESERVED %d 1\r\nx\r\n" % second
