"""10,000 tubes and a million jobs: how long views take, and the CPU time of viewers.

The targets are those of a quiet machine. These tests run beside others, so they measure CPU time,
with an allowance for shared caches.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from console.consoles import ConsoleProcess, Visitor, console
from processes import slowness
from servers import Server, ours
from wire import in_tube

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TUBES = 10_000
JOBS_OF_TUBE = 90
JOBS_OF_LARGE = 100_000
BURIED = 10_000
PIPELINED = 5_000
FIRST_OF_LARGE = TUBES * JOBS_OF_TUBE + 1

NOISE = 1.5
"""More CPU time for the same work, beside other tests."""
VIEW_S = 0.2
WAITED_S = 1.0
ANSWERS = 5
VIEWS: dict[str, dict[str, object]] = {
    "samples": {},
    "tubes/tube-5000": {},
    "tubes/large": {},
    "jobs": {"tube": "large", "limit": 1000},
    "jobs of a text that none has": {"tube": "large", "body": "none"},
    "jobs of a rare state": {"tube": "large", "state": "delayed"},
    f"jobs/{FIRST_OF_LARGE}": {},
    "connections": {},
    "dead-letters": {"tube": "large"},
    "schedules": {},
    "policies": {},
    "binlog": {},
    "replication": {},
    "doctor": {},
    "operations": {},
}
SETTLED_S = 8.0
"""A survey of so many tubes is as rare as its cost demands; the first ones come at once."""
WATCHED_S = 20.0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with ours() as running:
        with running.connect() as client:
            for number in range(TUBES):
                put = b"put 0 0 60 8\r\nbody %03d\r\n"
                puts = b"".join(put % one for one in range(JOBS_OF_TUBE))
                client.send(b"use tube-%d\r\n" % number + puts)
                client.replies(1 + JOBS_OF_TUBE)
            in_tube(client, b"large")
            for _ in range(0, JOBS_OF_LARGE, PIPELINED):
                client.send(b"put 0 0 60 8\r\nbody xyz\r\n" * PIPELINED)
                client.replies(PIPELINED)
            for begin in range(0, BURIED, PIPELINED):
                ids = range(FIRST_OF_LARGE + begin, FIRST_OF_LARGE + begin + PIPELINED)
                client.send(
                    b"".join(b"reserve-job %d\r\nbury %d 0\r\n" % (one, one) for one in ids)
                )
                client.replies(2 * PIPELINED)
            stats = client.stats()
            assert int(stats["current-jobs-ready"]) == TUBES * JOBS_OF_TUBE + JOBS_OF_LARGE - BURIED
            assert int(stats["current-jobs-buried"]) == BURIED
        yield running


@pytest.fixture
def beside(server: Server) -> Iterator[ConsoleProcess]:
    with console(server) as running:
        yield running


def test_every_view_answers_soon(beside: ConsoleProcess, server: Server) -> None:
    """A view takes so much CPU time of the console and the server, and waits for little else."""
    visitor, factor = beside.visitor(), slowness()
    took = {view: measured(visitor, view, [beside, server]) for view in VIEWS}
    print(took, factor)
    late = {
        view: one
        for view, one in took.items()
        if one.cpu_s > VIEW_S * NOISE * factor or one.least_s > WAITED_S * factor
    }
    assert not late, (late, factor)


@dataclass(frozen=True)
class Took:
    """CPU seconds of an answer, and the shortest time until one."""

    cpu_s: float
    least_s: float


def measured(visitor: Visitor, view: str, servers: Sequence[Server]) -> Took:
    path, least_s = f"s/0/{view.split()[0]}", math.inf
    visitor.ok(path, **VIEWS[view])
    before_s = sum(one.cpu_s() for one in servers)
    for _ in range(ANSWERS):
        start = time.perf_counter()
        visitor.ok(path, **VIEWS[view])
        least_s = min(least_s, time.perf_counter() - start)
    used_s = sum(one.cpu_s() for one in servers) - before_s
    return Took(used_s / ANSWERS, least_s)


@pytest.mark.parametrize(("count", "share"), [(1, 0.01), (50, 0.03)])
def test_viewers_are_cheap(beside: ConsoleProcess, count: int, share: float) -> None:
    with viewers(beside, count):
        time.sleep(SETTLED_S)
        factor = slowness()
        before_s, start_mono = beside.cpu_s(), time.monotonic()
        time.sleep(WATCHED_S)
        used = (beside.cpu_s() - before_s) / (time.monotonic() - start_mono)
    print(f"{count} viewers: {used:.2%} of a core", factor)
    assert 0 < used < share * NOISE * factor, (used, factor)


@contextlib.contextmanager
def viewers(watched: ConsoleProcess, count: int) -> Iterator[None]:
    """Let this number of pages read live events."""
    has_ended = threading.Event()

    def watch() -> None:
        with watched.visitor().events() as events:
            while not has_ended.is_set():
                events.next()

    threads = [threading.Thread(target=watch) for _ in range(count)]
    for one in threads:
        one.start()
    try:
        yield
    finally:
        has_ended.set()
        for one in threads:
            one.join()
