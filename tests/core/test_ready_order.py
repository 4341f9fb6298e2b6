"""The order of ready jobs is priority, then id, after any puts and removals.

The core keeps jobs that arrive in their leaving order in a run, and all others in a heap. That must
not be observable.
"""

from __future__ import annotations

import random

import pytest
from core.rig import Rig, RigClient, put_line
from hypothesis import given
from hypothesis import strategies as st


def put_all(client: RigClient, priorities: list[int]) -> list[tuple[int, int]]:
    """Puts them in one go; returns (priority, id) of each."""
    first = client.put(pri=priorities[0])
    client.ask_much(b"".join(put_line(b"x", pri) for pri in priorities[1:]))
    return [(pri, first + i) for i, pri in enumerate(priorities)]


def drain(client: RigClient) -> list[int]:
    """Reserves and deletes all, in order."""
    order = []
    while (reply := client.ask(b"reserve-with-timeout 0\r\n")).startswith(b"RESERVED "):
        order.append(int(reply.split()[1]))
        client.do(b"delete %d" % order[-1], b"DELETED")
    return order


@given(
    priorities=st.lists(st.integers(0, 5), min_size=1, max_size=60),
    removed=st.lists(st.integers(0, 59), max_size=60),
    taken=st.integers(0, 60),
)
def test_jobs_leave_by_priority_and_id(
    priorities: list[int], removed: list[int], taken: int
) -> None:
    """Also after jobs left from the middle, and others left and returned."""
    with Rig() as rig:
        client, holder = rig.client(), rig.client()
        jobs = put_all(client, priorities)
        for _ in range(min(taken, len(jobs))):
            holder.reserve()
        gone = {jobs[which % len(jobs)][1] for which in removed}
        held = {job for _, job in sorted(jobs)[:taken]}
        for job in gone:
            client.do(b"delete %d" % job, b"NOT_FOUND" if job in held else b"DELETED")
        holder.close()
        expected = [job for _, job in sorted(jobs) if job not in gone or job in held]
        assert drain(client) == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["random", "rising", "falling", "equal", "rising in blocks"])
def test_a_hundred_thousand_jobs(kind: str) -> None:
    """Half of them removed in random order, the rest leave in order."""
    size = 100_000
    dice = random.Random(kind)
    priorities = {
        "random": [dice.randrange(2**32) for _ in range(size)],
        "rising": list(range(size)),
        "falling": list(range(size, 0, -1)),
        "equal": [7] * size,
        "rising in blocks": [i % 1000 for i in range(size)],
    }[kind]
    with Rig() as rig:
        client = rig.client()
        jobs = put_all(client, priorities)
        gone = {job for _, job in dice.sample(jobs, size // 2)}
        replies = client.ask_much(b"".join(b"delete %d\r\n" % job for job in gone))
        assert replies == b"DELETED\r\n" * len(gone)
        assert rig.counters.ready == size - len(gone)
        replies = client.ask_much(b"reserve-with-timeout 0\r\n" * (size - len(gone)))
        lines = replies.split(b"\r\n")[0:-1:2]
        order = [int(line.split()[1]) for line in lines]
        assert order == [job for _, job in sorted(jobs) if job not in gone]
        assert rig.counters.ready == 0


def test_release_changes_the_place_in_the_order() -> None:
    with Rig() as rig:
        client = rig.client()
        put_all(client, [5] * 9)
        for job in (3, 5, 7):
            assert client.ask(b"reserve-job %d\r\n" % job).startswith(b"RESERVED")
        client.do(b"release 3 9 0", b"RELEASED")
        client.do(b"release 5 5 0", b"RELEASED")
        client.do(b"release 7 1 0", b"RELEASED")
        assert drain(client) == [7, 1, 2, 4, 5, 6, 8, 9, 3]


def test_the_best_job_of_several_tubes_is_taken() -> None:
    with Rig() as rig:
        client = rig.client()
        for tube, pri in [(b"a", 3), (b"b", 1), (b"c", 2), (b"a", 1), (b"b", 0)]:
            client.do(b"use %b" % tube, b"USING %b" % tube)
            client.put(pri=pri)
            client.ask(b"watch %b\r\n" % tube)
        assert drain(client) == [5, 2, 4, 3, 1]


def test_jobs_that_leave_the_heap_and_return() -> None:
    """Also when most entries of the heap are stale, and when a job has left it several times."""
    dice = random.Random(7)
    with Rig(max_job_size=16) as rig:
        client, holder = rig.client(), rig.client()
        put = put_all(client, [dice.randrange(50) for _ in range(6000)])
        jobs = {job: pri for pri, job in put}
        for turn in range(4):
            for job in dice.sample(sorted(jobs), 1500):
                holder.ask(b"reserve-job %d\r\n" % job)
                if dice.random() < 0.5:
                    jobs[job] = dice.randrange(50)
                holder.do(b"release %d %d 0" % (job, jobs[job]), b"RELEASED")
            for job in dice.sample(sorted(jobs), 900):
                client.do(b"delete %d" % job, b"DELETED")
                del jobs[job]
            first = min((pri, job) for job, pri in jobs.items())[1]
            assert client.ask(b"peek-ready\r\n").startswith(b"FOUND %d " % first), turn
            assert b"\ncurrent-jobs-ready: %d\n" % len(jobs) in client.ask(
                b"stats-tube default\r\n"
            )
        assert drain(client) == [job for _, job in sorted((pri, job) for job, pri in jobs.items())]
        assert b"\ncurrent-jobs-ready: 0\n" in client.ask(b"stats-tube default\r\n")
