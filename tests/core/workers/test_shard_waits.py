"""`wait` for jobs of other workers: what these report, and what happens when one of them ends."""

from __future__ import annotations

import time
from itertools import product

import pytest
from core.workers.cluster import Cluster, ClusterClient

LONG = 100
PAIRS = list(product(range(3), repeat=2))


def wait_line(job: int, seconds: int = LONG) -> bytes:
    return b"wait %d %d\r\n" % (seconds, job)


def forget_owner(cluster: Cluster, job: int) -> None:
    """As four million puts later."""
    cluster.shared.owner[job] = 0


def hold(cluster: Cluster, client: ClusterClient, shard: int, ttr: int) -> int:
    other = cluster.client(shard)
    job = other.put(ttr=ttr, tube=cluster.tube_on(shard))
    assert client.ask(b"reserve-job %d\r\n" % job).startswith(b"RESERVED")
    return job


@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize(("home", "shard"), PAIRS)
def test_the_end_of_a_job_anywhere(home: int, shard: int, forgotten: bool) -> None:
    with Cluster(3) as cluster:
        waiter, other = cluster.client(home), cluster.client((home + 1) % 3)
        for word in (b"DELETED", b"BURIED"):
            job = other.put(tube=cluster.tube_on(shard))
            if forgotten:
                forget_owner(cluster, job)
            assert waiter.ask(wait_line(job, 0)) == b"TIMED_OUT\r\n"
            assert waiter.ask(wait_line(job)) == b""
            if word == b"DELETED":
                other.do(b"delete %d" % job, b"DELETED")
            else:
                assert other.ask(b"reserve-job %d\r\n" % job).startswith(b"RESERVED")
                other.do(b"bury %d 0" % job, b"BURIED")
            assert waiter.read() == b"%b %d\r\n" % (word, job)
            then = b"NOT_FOUND" if word == b"DELETED" else b"BURIED %d" % job
            for seconds in (0, LONG):
                waiter.do(b"wait %d %d" % (seconds, job), then)
        waiter.do(b"features-", b"BAD_FORMAT")


@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize(("shard", "holder"), PAIRS)
def test_a_job_held_anywhere_times_out_soon(shard: int, holder: int, forgotten: bool) -> None:
    with Cluster(3) as cluster:
        waiter, other = cluster.client(0), cluster.client(1)
        job = other.put(tube=cluster.tube_on(shard))
        gone = other.put(tube=cluster.tube_on(shard))
        other.do(b"delete %d" % gone, b"DELETED")
        held = hold(cluster, waiter, holder, ttr=1)
        if forgotten:
            forget_owner(cluster, job)
            forget_owner(cluster, gone)
        for seconds in (0, LONG):
            waiter.do(b"wait %d %d" % (seconds, job), b"DEADLINE_SOON")
            waiter.do(b"wait %d %d" % (seconds, gone), b"NOT_FOUND")
        waiter.do(b"delete %d" % held, b"DELETED")
        waiter.do(b"wait 0 %d" % job, b"TIMED_OUT")
        hold(cluster, waiter, holder, ttr=2)
        assert waiter.ask(wait_line(job)) == b""
        time.sleep(1.1)
        cluster.settle()
        assert waiter.read() == b"DEADLINE_SOON\r\n"
        other.do(b"delete %d" % job, b"DELETED")
        assert waiter.ask(b"wait 0 %d\r\n" % job) == b"NOT_FOUND\r\n"


def test_a_wait_that_is_over_leaves_nothing_behind() -> None:
    with Cluster(2) as cluster:
        waiter, other = cluster.client(0), cluster.client(1)
        job = other.put(tube=cluster.tube_on(1))
        assert waiter.ask(b"wait 1 %d\r\n" % job) == b""
        time.sleep(1.05)
        cluster.settle()
        assert waiter.read() == b"TIMED_OUT\r\n"
        assert waiter.ask(wait_line(job)) == b""
        waiter.finish()
        assert waiter.read() == b"TIMED_OUT\r\n"
        leaving = cluster.client(0)
        assert leaving.ask(wait_line(job)) == b""
        leaving.close()
        other.do(b"delete %d" % job, b"DELETED")
        assert waiter.read() == b""


@pytest.mark.parametrize("abort", [False, True])
def test_a_wait_that_ends_early_gets_what_is_known(abort: bool) -> None:
    with Cluster(2) as cluster:
        other = cluster.client(1)
        jobs = [other.put(tube=cluster.tube_on(1)) for _ in range(2)]
        assert other.ask(b"reserve-job %d\r\n" % jobs[0]).startswith(b"RESERVED")
        other.do(b"bury %d 0" % jobs[0], b"BURIED")
        replies = [b"BURIED %d\r\n" % jobs[0], b"TIMED_OUT\r\n", b"NOT_FOUND\r\n"]
        for job, reply in zip([*jobs, 99], replies, strict=True):
            waiter = cluster.client(0)
            waiter.core.feed(waiter.session, wait_line(job))  # and the worker of the job is silent
            if abort:
                assert waiter.ask(b"reserve-abort\r\n") == reply + b"ABORTED\r\n"
            else:
                waiter.finish()
                assert waiter.read() == reply


def test_a_proxy_that_waited_for_a_job_can_reserve_one() -> None:
    with Cluster(2) as cluster:
        waiter, other = cluster.client(0), cluster.client(1)
        near, far = cluster.tube_on(0), cluster.tube_on(1)
        job = other.put(tube=far)
        assert waiter.ask(b"wait 1 %d\r\n" % job) == b""
        time.sleep(1.05)
        cluster.settle()
        assert waiter.read() == b"TIMED_OUT\r\n"
        other.do(b"delete %d" % job, b"DELETED")
        waiter.ask(b"watch %b\r\nwatch %b\r\nreserve\r\n" % (near, far))
        last = other.put(tube=far)
        assert waiter.read() == b"RESERVED %d 1\r\nx\r\n" % last
        assert waiter.ask(b"reserve-with-timeout 1\r\n") == b""
        time.sleep(1.05)
        cluster.settle()
        assert waiter.read() == b"TIMED_OUT\r\n"


def test_a_worker_that_ends_and_its_successor() -> None:
    with Cluster(3) as cluster:
        waiter, holder = cluster.client(0), cluster.client(0)
        job = waiter.put(tube=cluster.tube_on(1))
        hold(cluster, holder, 2, ttr=LONG)
        assert waiter.ask(wait_line(job)) == b""
        assert holder.ask(wait_line(job)) == b""
        cluster.kill(2)
        cluster.settle()
        cluster.kill(1)
        cluster.settle()
        assert waiter.read() == holder.read() == b""
        late = cluster.client(0)
        for seconds in (0, LONG):
            assert late.ask(wait_line(job, seconds)) == b"INTERNAL_ERROR\r\n"
        cluster.start(2)
        cluster.settle()
        assert waiter.read() == holder.read() == b""
        cluster.start(1)
        cluster.settle()
        assert waiter.read() == holder.read() == b"NOT_FOUND\r\n"


def test_a_worker_that_ends_before_it_answers() -> None:
    with Cluster(2) as cluster:
        job = cluster.client(0).put(tube=cluster.tube_on(1))
        waiters = [cluster.client(0) for _ in range(2)]
        for waiter, seconds in zip(waiters, (0, 1), strict=True):
            waiter.core.feed(waiter.session, wait_line(job, seconds))
        cluster.kill(1)
        cluster.settle()
        assert waiters[0].read() == b"INTERNAL_ERROR\r\n"
        assert waiters[1].read() == b""
        time.sleep(1.05)
        cluster.settle()
        assert waiters[1].read() == b"TIMED_OUT\r\n"
