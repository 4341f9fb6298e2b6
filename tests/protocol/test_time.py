"""Timers: TTRs, delays, pauses, timeouts and DEADLINE_SOON.

These tests wait for real seconds, so each checks several things.
"""

from __future__ import annotations

import time

import pytest
from wire import Client, Connect, in_tube, wait_for

TIMED_OUT = b"TIMED_OUT\r\n"
DEADLINE_SOON = b"DEADLINE_SOON\r\n"
SLACK_S = 0.7  # how late a busy machine may be


class Stopwatch:
    """Return the seconds since its creation."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def is_at(self, seconds: float) -> bool:
        """Check that this time has passed, and not much more."""
        passed = time.monotonic() - self._start
        assert seconds - 0.01 <= passed <= seconds + SLACK_S, f"{passed:.3f} s have passed"
        return True

    def sleep_until(self, seconds: float) -> None:
        """Wait for that moment."""
        time.sleep(max(0.0, self._start + seconds - time.monotonic()))


def test_a_reserve_times_out(connect: Connect, client: Client, tube: bytes) -> None:
    """The jobs of others, delayed and buried ones make no difference."""
    client.put(delay=100)
    client.bury(client.put())
    waiter = in_tube(connect(), tube)
    watch = Stopwatch()
    assert waiter.ask(b"reserve-with-timeout 1\r\n") == TIMED_OUT
    assert watch.is_at(1)
    assert client.stats(b"stats-tube " + tube)["current-waiting"] == "0"
    assert client.put() == client.reserve()


def test_a_ttr_runs_out(connect: Connect, client: Client, tube: bytes) -> None:
    """The waiting client gets the job; the late holder gets NOT_FOUND."""
    other = in_tube(connect(), tube)
    before = client.stats()
    job = client.put(ttr=1)
    watch = Stopwatch()
    assert client.reserve() == job
    assert other.ask(b"reserve-with-timeout 3\r\n").startswith(b"RESERVED %d " % job)
    assert watch.is_at(1)
    stats = client.job_stats(job)
    assert (stats["timeouts"], stats["reserves"], stats["releases"]) == ("1", "2", "0")
    assert int(client.stats()["job-timeouts"]) == int(before["job-timeouts"]) + 1
    for late in (b"touch %d\r\n", b"release %d 0 0\r\n", b"bury %d 0\r\n", b"delete %d\r\n"):
        assert client.ask(late % job) == b"NOT_FOUND\r\n"
    assert other.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"


@pytest.mark.slow
def test_delayed_jobs_are_handed_out_in_the_order_of_their_deadlines(
    connect: Connect, client: Client, tube: bytes
) -> None:
    """Each goes to a waiter at once, at any priority, and is invisible until then."""
    waiters = [in_tube(connect(), tube) for _ in range(2)]
    watch = Stopwatch()
    early = client.put(pri=9, delay=1)
    late = client.put(pri=0, delay=2)
    for number, waiter in enumerate(waiters, start=1):
        waiter.send(b"reserve-with-timeout 5\r\n")
        wait_for(client, tube, "current-waiting", number)
    assert waiters[0].reply().startswith(b"RESERVED %d " % early)
    assert watch.is_at(1)
    assert client.job_stats(early)["delay"] == "1"
    assert waiters[1].reply().startswith(b"RESERVED %d " % late)
    assert watch.is_at(2)


def test_a_pause_ends_and_the_waiters_are_served(
    connect: Connect, client: Client, tube: bytes
) -> None:
    waiter = in_tube(connect(), tube)
    assert client.ask(b"pause-tube %b 1\r\n" % tube) == b"PAUSED\r\n"
    watch = Stopwatch()
    job = client.put()
    assert client.ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT
    assert waiter.ask(b"reserve-with-timeout 5\r\n").startswith(b"RESERVED %d " % job)
    assert watch.is_at(1)
    stats = client.stats(b"stats-tube " + tube)
    assert (stats["pause"], stats["pause-time-left"]) == ("0", "0")


def test_deadline_soon_comes_when_the_last_second_begins(
    connect: Connect, client: Client, tube: bytes
) -> None:
    """Touch postpones it."""
    job = client.put(ttr=2)
    assert client.reserve() == job
    watch = Stopwatch()
    assert client.ask(b"reserve\r\n") == DEADLINE_SOON
    assert watch.is_at(1)
    assert client.ask(b"reserve-with-timeout 5\r\n") == DEADLINE_SOON
    assert watch.is_at(1)
    assert client.ask(b"touch %d\r\n" % job) == b"TOUCHED\r\n"
    assert client.ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT
    assert connect().ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT


def test_a_ttr_of_one_second_is_soon_from_the_start(
    connect: Connect, client: Client, tube: bytes
) -> None:
    """A ready job precedes the warning, also one that another client releases."""
    job, other_job = client.put(pri=1, ttr=1), client.put(pri=2)
    assert client.reserve() == job
    assert client.ask(b"reserve-with-timeout 0\r\n").startswith(b"RESERVED %d " % other_job)
    for command in (b"reserve-with-timeout 0\r\n", b"reserve-with-timeout 9\r\n", b"reserve\r\n"):
        assert client.ask(command) == DEADLINE_SOON
    third = in_tube(connect(), tube + b".other").put()
    assert client.ask(b"reserve-job %d\r\n" % third).startswith(b"RESERVED ")
    assert client.ask(b"reserve-job 0\r\n") == b"NOT_FOUND\r\n"


def test_deadline_soon_also_where_the_ready_job_is_paused(client: Client, tube: bytes) -> None:
    job = client.put(pri=1, ttr=1)
    client.put(pri=2)
    assert client.reserve() == job
    assert client.ask(b"pause-tube %b 100\r\n" % tube) == b"PAUSED\r\n"
    watch = Stopwatch()
    assert client.ask(b"reserve-with-timeout 9\r\n") == DEADLINE_SOON
    assert watch.is_at(0)


@pytest.mark.slow
def test_touch_starts_the_ttr_again(connect: Connect, client: Client, tube: bytes) -> None:
    job = client.put(ttr=2)
    assert client.reserve() == job
    watch = Stopwatch()
    waiter = in_tube(connect(), tube)
    waiter.send(b"reserve\r\n")
    watch.sleep_until(1)
    assert client.job_stats(job)["time-left"] == "0"
    assert client.ask(b"touch %d\r\n" % job) == b"TOUCHED\r\n"
    assert client.job_stats(job)["time-left"] == "1"
    assert waiter.reply().startswith(b"RESERVED %d " % job)
    assert watch.is_at(3)
    assert client.job_stats(job)["age"] == "3"
