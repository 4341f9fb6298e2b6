"""Latency of commands, syncs, and time in the queue, with simulated time."""

from __future__ import annotations

import select
import socket
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from core.rig import MILLISECOND, SECOND, START, Rig, RigClient, put_line
from hypothesis import given
from hypothesis import strategies as st

from beanstalkd_py.core.clocks import Now
from beanstalkd_py.core.core import Core, CoreConfig
from beanstalkd_py.core.shared_memory import new_shared
from beanstalkd_py.server.metrics.server_metrics import TIMED, BucketBounds


def values(histogram: Any) -> dict[int, int]:
    """How often a value was at most 2**power, and more than the power before."""
    return {power: count for power, count in enumerate(histogram.count) if count}


def latency(rig: Rig, command: str) -> Any:
    return rig.counters.latency[TIMED.index(command)]


def power_of(value: int) -> int:
    return max(value - 1, 0).bit_length()


def later(rig: Rig, nanoseconds: int) -> None:
    """Only the clock: no timer runs, and no round ends."""
    rig.now = Now(rig.now.mono + nanoseconds, rig.now.wall + nanoseconds)


def feed(client: RigClient, data: bytes) -> None:
    """Feed bytes in a round that does not end yet."""
    client.rig.core.feed(client.session, data, client.rig.now)


@pytest.mark.parametrize("interval_ns", [0, SECOND, -1])
def test_a_reply_that_waits_for_a_sync_takes_until_that(tmp_path: Path, interval_ns: int) -> None:
    with Rig(tmp_path, sync_interval_ns=interval_ns) as rig:
        client = rig.client()
        feed(client, put_line(b"x") + b"list-tube-used\r\n")
        later(rig, 3 * MILLISECOND)
        feed(client, put_line(b"x") * 2)
        later(rig, MILLISECOND)
        rig.settle()
        puts = latency(rig, "put")
        assert values(puts) == {power_of(4 * MILLISECOND): 1, power_of(MILLISECOND): 2}
        assert puts.sum == 6 * MILLISECOND
        # It can leave only after the reply to the put.
        assert latency(rig, "list-tube-used").sum == 4 * MILLISECOND


def test_half_a_command_takes_no_time() -> None:
    """The time starts with the last byte of the body."""
    with Rig() as rig:
        client = rig.client()
        client.send(put_line(b"body")[:-3])
        rig.advance(5 * SECOND)
        client.send(put_line(b"body")[-3:])
        assert values(latency(rig, "put")) == {0: 1}


@pytest.mark.parametrize("end", ["a job", "its time", "a deadline", "the client leaves"])
def test_the_wait_of_a_reserve_is_no_latency(end: str) -> None:
    with Rig() as rig:
        client, other = rig.client(), rig.client()
        if end == "a deadline":
            client.put(ttr=20)
            client.reserve()
        client.send(b"reserve-with-timeout %d\r\n" % (9 if end == "its time" else 90))
        before = sum(values(latency(rig, "reserve-with-timeout")).values())
        rig.advance(5 * SECOND)
        if end == "a job":
            other.put()
        elif end == "the client leaves":
            rig.core.finish(client.session, rig.now)
            rig.settle()
        else:
            rig.advance(15 * SECOND)
            rig.settle()
        found = latency(rig, "reserve-with-timeout")
        assert sum(values(found).values()) == before + 1
        assert found.sum == 0


def test_a_reply_of_python_is_timed_until_it_arrives() -> None:
    with Rig() as rig:
        client = rig.client()
        feed(client, b"stats\r\n")
        later(rig, 7 * MILLISECOND)
        rig.settle()
        assert latency(rig, "stats").sum == 7 * MILLISECOND
        assert values(latency(rig, "stats")) == {power_of(7 * MILLISECOND): 1}


COMMANDS = (
    *(b"put 0 0 9 1\r\nx\r\n", b"put 0 5 9 1\r\nx\r\n", b"put 0 0 9 1\r\nxyz", b"put 1\r\n"),
    *(b"put 0 0 9 99999\r\n" + b"x" * 99999 + b"\r\n", b"nonsense\r\n", b"y" * 300 + b"\r\n"),
    *(b"reserve-with-timeout 0\r\n", b"reserve-job 2\r\n", b"delete 1\r\n", b"release 2 0 0\r\n"),
    *(b"bury 2 0\r\n", b"kick 5\r\n", b"kick-job 3\r\n", b"touch 2\r\n", b"peek 1\r\n"),
    *(b"peek-ready\r\n", b"peek-delayed\r\n", b"peek-buried\r\n", b"stats\r\n", b"use a\r\n"),
    *(b"stats-job 1\r\n", b"stats-tube a\r\n", b"watch a\r\n", b"ignore a\r\n", b"list-tubes\r\n"),
    *(b"list-tube-used\r\n", b"list-tubes-watched\r\n", b"pause-tube a 0\r\n", b"stats-tube\r\n"),
)


def valid(command: bytes) -> bool:
    """Return whether it is a command, and so is timed."""
    word = command.split()[0].decode()
    return word in TIMED and command not in (b"put 1\r\n", b"stats-tube\r\n")


@given(
    st.lists(st.sampled_from(COMMANDS), max_size=30),
    st.lists(st.integers(0, 10**7), max_size=8),
    st.lists(st.integers(0, 2000), max_size=8),
)
def test_every_command_is_timed_once(
    commands: list[bytes], steps: list[int], cuts: list[int]
) -> None:
    """For any division into pieces and any length of rounds; no time is lost."""
    data = b"".join(commands)
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    with Rig() as rig:
        client = rig.client()
        for number, (begin, end) in enumerate(pairwise(edges)):
            client.send(data[begin:end])
            client.read()
            later(rig, steps[number % len(steps)] if steps else 0)
            rig.settle()
        expected = dict.fromkeys(TIMED, 0)
        for command in commands:
            if valid(command):
                expected[command.split()[0].decode()] += 1
        assert {n: sum(latency(rig, n).count) for n in TIMED} == expected


def test_time_in_the_queue_is_since_it_was_ready_last() -> None:
    with Rig() as rig:
        client = rig.client()
        client.put(ttr=1000)
        rig.advance(3 * SECOND)
        job = client.reserve()
        assert values(rig.counters.in_queue) == {power_of(3 * SECOND): 1}
        rig.advance(100 * SECOND)
        client.do(b"release %d 0 0" % job, b"RELEASED")
        rig.advance(10 * SECOND)
        client.reserve()
        assert rig.counters.in_queue.sum == 13 * SECOND
        client.put(delay=50)
        rig.advance(50 * SECOND)
        rig.advance(7 * SECOND)
        client.reserve()
        assert rig.counters.in_queue.sum == 20 * SECOND


def test_a_job_that_was_not_ready_has_no_time_in_the_queue() -> None:
    with Rig() as rig:
        client = rig.client()
        client.bury(client.put())
        before = sum(rig.counters.in_queue.count)
        client.ask(b"reserve-job 1\r\n")
        client.put(delay=1000)
        client.ask(b"reserve-job 2\r\n")
        assert sum(rig.counters.in_queue.count) == before


def test_a_clock_that_is_set_back_makes_no_negative_time() -> None:
    with Rig() as rig:
        client = rig.client()
        client.put()
        rig.now = Now(rig.now.mono + SECOND, rig.now.wall - 1000 * SECOND)
        client.reserve()
        assert values(rig.counters.in_queue) == {0: 1}
        assert rig.counters.in_queue.sum == 0


@pytest.mark.parametrize("interval_ns", [0, SECOND])
def test_one_sync_and_its_entries(tmp_path: Path, interval_ns: int) -> None:
    with Rig(tmp_path, sync_interval_ns=interval_ns) as rig:
        start = rig.counters.sync_entries.sum
        syncs = sum(rig.counters.sync_entries.count)
        client = rig.client()
        rig.advance(2 * SECOND)
        client.send(put_line(b"x") * 5 + b"delete 1\r\ndelete 2\r\n")
        rig.advance(2 * SECOND)
        rig.settle()
        assert rig.counters.sync_entries.sum - start == 7
        assert sum(rig.counters.sync_entries.count) == syncs + 1
        assert sum(rig.counters.sync_time.count) == rig.counters.syncs == syncs + 1
        assert 0 < rig.counters.sync_time.sum < 60 * SECOND


def test_a_reply_waits_for_the_sync_of_another_thread(tmp_path: Path) -> None:
    """Clients that put in the same round get one sync together, and each has waited for it."""
    crowd, rounds = 4, 20
    shared = new_shared()
    core = Core(CoreConfig(binlog_dir=str(tmp_path)), shared)
    core.recover()
    counters = shared.worker[0]
    pairs = [socket.socketpair() for _ in range(crowd)]
    for _, theirs in pairs:
        core.adopt(theirs.detach())
    before = counters.sync_time.sum
    for _ in range(rounds):
        for ours, _ in pairs:
            ours.sendall(put_line(b"x"))
        for ours, _ in pairs:
            while not select.select([ours], [], [], 0)[0]:
                core.run(MILLISECOND, linger=True)
            assert ours.recv(100).startswith(b"INSERTED")
    puts = counters.latency[TIMED.index("put")]
    assert sum(puts.count) == crowd * rounds
    assert puts.sum >= crowd * (counters.sync_time.sum - before) > 0
    core.close()
    for ours, _ in pairs:
        ours.close()


def test_another_process_goes_on_counting(tmp_path: Path) -> None:
    """The counters are in shared memory, and outlive a worker."""
    with Rig(tmp_path) as rig:
        rig.client().put()
        shared = rig.shared
        assert rig.counters.sync_entries.sum == rig.counters.records_written == 1
    with Rig(tmp_path, shared=shared, now=START) as rig:
        rig.client().put()
        assert rig.counters.sync_entries.sum == rig.counters.records_written == 2
        assert sum(latency(rig, "put").count) == 2


def test_live_and_dead_bytes(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        client = rig.client()
        empty = rig.counters.binlog_bytes
        assert (rig.counters.binlog_files, rig.counters.binlog_live_bytes) == (1, 0)
        client.put(b"x" * 1000)
        live = rig.counters.binlog_live_bytes
        assert 1000 < live < 1200
        assert rig.counters.binlog_bytes == empty + live
        client.do(b"delete 1", b"DELETED")
        assert rig.counters.binlog_live_bytes == 0
        assert rig.counters.binlog_bytes > empty + live
        sizes = sum(file.stat().st_size for file in tmp_path.glob("binlog.*"))
        assert rig.counters.binlog_bytes <= sizes


@given(st.lists(st.integers(0, 2**50 - 1), max_size=30))
def test_buckets_count_values_up_to_their_bound(waits: list[int]) -> None:
    """A value counts in the first bucket whose bound it does not exceed, and in all later."""
    with Rig() as rig:
        client = rig.client()
        for wait in waits:
            client.put()
            rig.now = Now(rig.now.mono, rig.now.wall + wait)
            client.ask(b"delete %d\r\n" % client.reserve())
        read, total = BucketBounds(0, 50).read([rig.counters.in_queue])
        assert total == pytest.approx(sum(waits))
        for bound, count in read[:-1]:
            assert count == sum(wait <= float(bound) for wait in waits)
        assert read[-1] == ("+Inf", len(waits))
