"""Timers to the nanosecond, over years of simulated time."""

from __future__ import annotations

import pytest
from core.rig import MILLISECOND, NEVER, SECOND, YEAR, Rig, put_line
from hypothesis import given
from hypothesis import strategies as st

LONGEST = 2**32 - 1


@pytest.mark.parametrize("seconds", [1, 2, 59, 86400, LONGEST])
def test_a_ttr_ends_on_its_nanosecond(seconds: int) -> None:
    with Rig() as rig:
        worker = rig.client()
        job = worker.put(ttr=seconds)
        start = rig.now.mono
        assert worker.reserve() == job
        assert rig.advance(seconds * SECOND - 1) == start + seconds * SECOND
        assert worker.job(job)["state"] == "reserved"
        rig.advance(1)
        stats = worker.job(job)
        assert (stats["state"], stats["timeouts"], stats["reserves"]) == ("ready", "1", "1")
        assert rig.counters.job_timeouts == 1


def test_a_ttr_of_zero_is_one_second() -> None:
    with Rig() as rig:
        worker = rig.client()
        job = worker.put(ttr=0)
        assert worker.job(job)["ttr"] == "1"
        worker.reserve()
        rig.advance(SECOND - 1)
        assert worker.job(job)["state"] == "reserved"
        rig.advance(1)
        assert worker.job(job)["state"] == "ready"


@pytest.mark.parametrize("seconds", [1, 30, 86400 * 400, LONGEST])
def test_a_delay_ends_on_its_nanosecond_and_stays_in_the_statistics(seconds: int) -> None:
    with Rig() as rig:
        client = rig.client()
        job = client.put(delay=seconds)
        assert client.job(job)["time-left"] == str(seconds)
        rig.advance(seconds * SECOND - 1)
        stats = client.job(job)
        assert (stats["state"], stats["time-left"]) == ("delayed", "0")
        rig.advance(1)
        stats = client.job(job)
        assert (stats["state"], stats["delay"], stats["time-left"]) == ("ready", str(seconds), "0")


@given(
    puts=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 60)), min_size=1, max_size=30),
    steps=st.lists(st.integers(1, 20 * SECOND), max_size=20),
)
def test_delayed_jobs_are_handed_out_in_deadline_order(
    puts: list[tuple[int, int]], steps: list[int]
) -> None:
    """Each goes to one waiting worker, at any priority and however late the tick."""
    with Rig() as rig:
        producer = rig.client()
        waiting = [rig.client() for _ in puts]
        for worker in waiting:
            worker.send(b"reserve\r\n")
        due = sorted((delay, producer.put(pri=pri, delay=delay)) for pri, delay in puts)
        for step in [*steps, 60 * SECOND]:
            rig.advance(step)
        got = [int(worker.read().split()[1]) for worker in waiting]
        assert got == [job for _, job in due]


@given(st.lists(st.integers(0, 10), min_size=1, max_size=8))
def test_reserve_with_timeout_gives_up_on_its_nanosecond(timeouts: list[int]) -> None:
    with Rig() as rig:
        start = rig.now.mono
        workers = [(rig.client(), seconds) for seconds in timeouts]
        for worker, seconds in workers:
            worker.send(b"reserve-with-timeout %d\r\n" % seconds)
        for second in range(11):
            at = start + second * SECOND
            if at > rig.now.mono:
                rig.advance(at - 1 - rig.now.mono)
            for worker, seconds in workers:
                assert worker.read() == (b"TIMED_OUT\r\n" if seconds == second == 0 else b"")
            rig.advance(at - rig.now.mono)
            for worker, seconds in workers:
                assert worker.read() == (b"TIMED_OUT\r\n" if seconds == second > 0 else b"")
        assert rig.tick() == NEVER


def test_the_longest_wait_is_68_years() -> None:
    with Rig() as rig:
        worker = rig.client()
        worker.send(b"reserve-with-timeout 2147483647\r\n")
        for _ in range(68):
            rig.advance(YEAR)
        assert worker.read() == b""
        rig.advance(YEAR)
        assert worker.read() == b"TIMED_OUT\r\n"


def test_deadline_soon_comes_when_the_last_second_begins() -> None:
    with Rig() as rig:
        worker = rig.client()
        worker.put(ttr=10)
        worker.reserve()
        worker.send(b"reserve\r\n")
        rig.advance(9 * SECOND - 1)
        assert worker.read() == b""
        rig.advance(1)
        assert worker.read() == b"DEADLINE_SOON\r\n"


def test_deadline_soon_at_once_within_the_last_second() -> None:
    with Rig() as rig:
        worker = rig.client()
        worker.put(ttr=10)
        worker.reserve()
        rig.advance(9 * SECOND - 1)
        assert worker.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
        rig.advance(1)
        assert worker.ask(b"reserve-with-timeout 0\r\n") == b"DEADLINE_SOON\r\n"
        assert worker.ask(b"reserve\r\n") == b"DEADLINE_SOON\r\n"
        other = rig.client()
        assert other.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"


def test_a_ttr_of_one_second_is_its_last_from_the_start() -> None:
    with Rig() as rig:
        worker = rig.client()
        worker.put(ttr=1)
        worker.reserve()
        assert worker.ask(b"reserve\r\n") == b"DEADLINE_SOON\r\n"


def test_a_ready_job_comes_before_deadline_soon() -> None:
    with Rig() as rig:
        worker = rig.client()
        worker.put(ttr=1)
        worker.reserve()
        second = worker.put()
        assert worker.reserve() == second


def test_a_ready_job_of_a_paused_tube_holds_no_deadline_soon_back_for_ever() -> None:
    with Rig() as rig:
        worker = rig.client()
        worker.put(ttr=1)
        worker.reserve()
        worker.put()
        worker.do(b"pause-tube default 100", b"PAUSED")
        worker.send(b"reserve\r\n")
        rig.tick()
        assert worker.read() == b"DEADLINE_SOON\r\n"


@pytest.mark.parametrize("ttr", [1, 2, 5])
def test_fault_5_touch_after_deadline_soon_keeps_the_ttr(ttr: int) -> None:
    with Rig() as rig:
        worker = rig.client()
        job = worker.put(ttr=ttr)
        worker.reserve()
        worker.send(b"reserve-with-timeout 100\r\n")
        rig.advance((ttr - 1) * SECOND)
        assert worker.read() == b"DEADLINE_SOON\r\n"
        rig.advance(SECOND // 2)
        worker.do(b"touch %d" % job, b"TOUCHED")
        rig.advance(ttr * SECOND - 1)
        assert worker.job(job)["state"] == "reserved"
        rig.advance(1)
        stats = worker.job(job)
        assert (stats["state"], stats["timeouts"]) == ("ready", "1")


@given(
    ttrs=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    touches=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3 * SECOND)), max_size=20),
)
def test_every_ttr_ends_once_however_often_it_is_touched(
    ttrs: list[int], touches: list[tuple[int, int]]
) -> None:
    with Rig() as rig:
        worker = rig.client()
        deadlines = {}
        for ttr in ttrs:
            worker.put(ttr=ttr)
            job = worker.reserve()
            deadlines[job] = rig.now.mono + ttr * SECOND
            worker.send(b"reserve-with-timeout 0\r\n")  # DEADLINE_SOON is allowed
            worker.read()
        ended: set[int] = set()
        for which, step in [*touches, *[(0, SECOND)] * 10]:
            job = which % len(ttrs) + 1
            held = job not in ended
            worker.do(b"touch %d" % job, b"TOUCHED" if held else b"NOT_FOUND")
            if held:
                deadlines[job] = rig.now.mono + ttrs[job - 1] * SECOND
            next_at = rig.advance(step)
            ended |= {job for job, at in deadlines.items() if at <= rig.now.mono}
            for number in deadlines:
                stats = worker.job(number)
                assert (stats["state"], stats["timeouts"]) == (
                    ("ready", "1") if number in ended else ("reserved", "0")
                )
            held_still = [at for number, at in deadlines.items() if number not in ended]
            assert next_at <= min(held_still, default=NEVER)


@pytest.mark.parametrize("seconds", [1, 3600, LONGEST])
def test_a_pause_ends_on_its_nanosecond(seconds: int) -> None:
    with Rig() as rig:
        client, worker = rig.client(), rig.client()
        client.do(b"pause-tube default %d" % seconds, b"PAUSED")
        job = client.put()
        worker.send(b"reserve\r\n")
        rig.advance(seconds * SECOND - 1)
        assert worker.read() == b""
        assert client.stats(b"stats-tube default")["pause"] == str(seconds)
        rig.advance(1)
        assert worker.read() == b"RESERVED %d 1\r\nx\r\n" % job
        tube = client.stats(b"stats-tube default")
        assert (tube["pause"], tube["pause-time-left"], tube["cmd-pause-tube"]) == ("0", "0", "1")


def test_a_pause_is_lifted_by_a_pause_of_zero() -> None:
    with Rig() as rig:
        client, worker = rig.client(), rig.client()
        client.put()
        client.do(b"pause-tube default 1000", b"PAUSED")
        worker.send(b"reserve\r\n")
        assert worker.read() == b""
        client.do(b"pause-tube default 0", b"PAUSED")
        rig.advance(1)
        assert worker.read().startswith(b"RESERVED 1 ")


def test_a_later_pause_replaces_an_earlier_one() -> None:
    with Rig() as rig:
        client, worker = rig.client(), rig.client()
        client.put()
        client.do(b"pause-tube default 10", b"PAUSED")
        rig.advance(5 * SECOND)
        client.do(b"pause-tube default 10", b"PAUSED")
        worker.send(b"reserve\r\n")
        rig.advance(10 * SECOND - 1)
        assert worker.read() == b""
        rig.advance(1)
        assert worker.read().startswith(b"RESERVED 1 ")


@given(step=st.integers(-(10**18), 10**18))
def test_fault_13_a_step_of_the_wall_clock_moves_no_deadline(step: int) -> None:
    with Rig() as rig:
        client, worker, waiter = rig.client(), rig.client(), rig.client()
        held = client.put(ttr=10)
        worker.reserve()
        client.do(b"pause-tube default 12", b"PAUSED")
        delayed = client.put(delay=11)
        waiter.send(b"reserve-with-timeout 9\r\n")
        rig.advance(SECOND, wall_step=step)
        assert client.job(held)["time-left"] == "9"
        assert client.job(delayed)["time-left"] == "10"
        assert int(client.job(delayed)["age"]) >= 0
        assert client.stats(b"stats-tube default")["pause-time-left"] == "11"
        rig.advance(8 * SECOND - 1)
        assert waiter.read() == b""
        rig.advance(1)
        assert waiter.read() == b"TIMED_OUT\r\n"
        rig.advance(SECOND)
        assert client.job(held)["state"] == "ready"
        rig.advance(SECOND)
        assert client.job(delayed)["state"] == "ready"
        waiter.send(b"reserve\r\n")
        assert waiter.read() == b""
        rig.advance(SECOND)
        assert waiter.read().startswith(b"RESERVED %d " % held)


def test_ten_years_of_a_job_that_is_never_finished() -> None:
    """Every timeout is counted, none is lost."""
    with Rig() as rig:
        worker = rig.client()
        job = worker.put(ttr=86400)
        for _ in range(3650):
            assert worker.reserve() == job
            rig.advance(86400 * SECOND)
        stats = worker.job(job)
        assert (stats["timeouts"], stats["reserves"], stats["state"]) == ("3650", "3650", "ready")
        assert stats["age"] == str(3650 * 86400)


def test_a_clock_that_stood_still_for_a_year_settles_everything_in_its_order() -> None:
    with Rig() as rig:
        client, worker, waiter = rig.client(), rig.client(), rig.client()
        client.send(put_line(b"held", ttr=30))
        worker.reserve()
        client.send(put_line(b"late", delay=50))
        waiter.send(b"reserve-with-timeout 20\r\n")
        second = rig.client()
        second.send(b"reserve\r\n")
        rig.advance(YEAR)
        assert waiter.read() == b"TIMED_OUT\r\n"
        assert second.read().endswith(b"\r\nheld\r\n")
        assert client.ask(b"peek-ready\r\n").endswith(b"\r\nlate\r\n")


def test_an_idle_core_has_no_timer() -> None:
    with Rig() as rig:
        worker = rig.client()
        job = worker.put(ttr=2)
        worker.send(b"reserve-with-timeout 1\r\n")
        worker.do(b"delete %d" % job, b"RESERVED 1 1\r\nx\r\nDELETED")
        # The timer of a deleted job may still fire, without effect.
        rig.advance(2 * SECOND)
        assert rig.tick() == NEVER
        rig.advance(MILLISECOND)
        assert worker.read() == b""
