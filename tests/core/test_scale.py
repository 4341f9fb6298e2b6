"""A command costs the same however many tubes, sessions and jobs there are.

Costs are compared as a ratio of two runs, with bounds that only a walk over everything breaks: at
these sizes such a walk costs a hundred times more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from core.rig import SECOND, Rig, RigClient, put_line

TUBES = 30_000
SESSIONS = 100_000
# A larger working set misses the caches, which is not what these tests measure.
GENEROUS = 6.0
CYCLES = 2_000
CYCLE = put_line(b"x" * 100) + b"reserve\r\ndelete %d\r\n"


def cost_of(work: Callable[[], None]) -> float:
    """The processor time of the fastest of some runs."""
    costs = []
    for _ in range(5):
        start = time.thread_time_ns()
        work()
        costs.append(time.thread_time_ns() - start)
    return min(costs)


def cycles(client: RigClient) -> Callable[[], None]:
    """Put, reserve and delete, with a tick after each, as in a server."""

    def work() -> None:
        rig = client.rig
        for _ in range(CYCLES):
            number = rig.shared.last_id + 1
            rig.core.feed(client.session, CYCLE % number, rig.now)
            rig.core.tick(rig.now)
            rig.core.commit(rig.now)
        assert client.read().count(b"DELETED\r\n") == CYCLES

    return work


@pytest.fixture(scope="module")
def alone() -> float:
    """The cost of the cycles in an empty core."""
    with Rig() as rig:
        return cost_of(cycles(rig.client()))


@contextmanager
def many_tubes(delay: int) -> Iterator[tuple[Rig, RigClient]]:
    with Rig() as rig:
        client = rig.client()
        for number in range(TUBES):
            line = b"use tube-%d\r\n" % number
            rig.core.feed(client.session, line + put_line(b"x", delay=delay), rig.now)
        assert client.ask(b"use default\r\n").endswith(b"USING default\r\n")
        assert rig.counters.tubes == TUBES + 1
        yield rig, client


@pytest.mark.parametrize("delay", [0, 3600], ids=["ready", "delayed"])
def test_fault_14_a_command_does_not_walk_all_tubes(alone: float, delay: int) -> None:
    with many_tubes(delay) as (_, client):
        assert cost_of(cycles(client)) < alone * GENEROUS


def test_paused_tubes_cost_nothing(alone: float) -> None:
    with many_tubes(0) as (rig, client):
        for number in range(TUBES):
            rig.core.feed(client.session, b"pause-tube tube-%d 3600\r\n" % number, rig.now)
        client.read()
        assert cost_of(cycles(client)) < alone * GENEROUS


@pytest.mark.slow
@pytest.mark.parametrize("line", [b"reserve\r\n", b"reserve-with-timeout 3600\r\n"])
def test_waiting_sessions_cost_nothing(alone: float, line: bytes) -> None:
    with Rig() as rig:
        client = rig.client()
        for _ in range(SESSIONS):
            waiter = rig.core.open(rig.now)
            rig.core.feed(waiter, b"watch other\r\nignore default\r\n" + line, rig.now)
        rig.settle()
        assert rig.counters.waiting == SESSIONS
        assert cost_of(cycles(client)) < alone * GENEROUS


@pytest.mark.costly
def test_sessions_that_hold_jobs_cost_nothing(alone: float) -> None:
    with Rig() as rig:
        client = rig.client()
        for _ in range(SESSIONS):
            holder = rig.core.open(rig.now)
            rig.core.feed(holder, put_line(b"x", ttr=3600) + b"reserve\r\n", rig.now)
        rig.settle()
        assert rig.counters.reserved == SESSIONS
        assert cost_of(cycles(client)) < alone * GENEROUS


@pytest.mark.costly
def test_a_hundred_thousand_waiters_are_served_in_their_order() -> None:
    """One queue of waiters: the first to wait is the first to be served, and leaves at O(1)."""
    with Rig() as rig:
        client = rig.client()
        waiters = [rig.core.open(rig.now) for _ in range(SESSIONS)]
        for waiter in waiters:
            rig.core.feed(waiter, b"reserve\r\n", rig.now)
        dropouts = waiters[::2]
        start = time.thread_time()
        for waiter in dropouts:
            rig.core.end(waiter, rig.now)
        client.ask(put_line(b"x") * (SESSIONS // 2))
        assert time.thread_time() - start < 5
        served = [rig.core.output(waiter) for waiter in waiters[1::2]]
        assert served == [b"RESERVED %d 1\r\nx\r\n" % (i + 1) for i in range(len(served))]


def test_thirty_thousand_delays_fall_due_one_after_another() -> None:
    with many_tubes(5) as (rig, _):
        start = time.thread_time()
        rig.advance(5 * SECOND - 1)
        assert rig.counters.delayed == TUBES
        rig.advance(1)
        assert rig.counters.delayed == 0
        assert rig.counters.ready == TUBES
        assert time.thread_time() - start < 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["equal", "random"])
def test_a_million_jobs_cost_what_ten_thousand_do(kind: str) -> None:
    """Logarithmic in jobs: removal of the first of a large heap is a few steps deeper."""

    def measured(size: int) -> float:
        with Rig() as rig:
            client = rig.client()
            state = 1
            for number in range(size):
                state = state * 48271 % 2147483647
                pri = 7 if kind == "equal" else state
                rig.core.feed(client.session, put_line(b"x" * 10, pri), rig.now)
                if number % 10_000 == 0:
                    client.read()
            client.read()

            def work() -> None:
                replies = client.ask(b"reserve-with-timeout 0\r\n" * CYCLES)
                ids = [line.split()[1] for line in replies.split(b"\r\n")[0:-1:2]]
                done = client.ask(b"".join(b"delete %b\r\n" % job for job in ids))
                assert done == b"DELETED\r\n" * CYCLES

            return cost_of(work)

    assert measured(1_000_000) < measured(10_000) * GENEROUS
