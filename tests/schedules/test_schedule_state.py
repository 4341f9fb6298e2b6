"""The progress of one schedule: missed ticks, failures, other settings, and a clock that is set."""

from __future__ import annotations

from dataclasses import replace

import pytest

from beanstalkd_py.schedules.schedule import Schedule
from beanstalkd_py.server.schedules.progress_file import Progress
from beanstalkd_py.server.schedules.schedule_state import MAX_RETRY_S, ScheduleState

HOUR = 3600
DAY = 24 * HOUR
NOON = 20_000 * DAY + 12 * HOUR
HOURLY = Schedule("hourly", "0 * * * *", "tube")


def state(catch_up: str = "one", last: int | None = None, now: int = NOON + 60) -> ScheduleState:
    schedule = replace(HOURLY, catch_up=catch_up)
    progress = None if last is None else Progress(HOURLY.cron, "UTC", last, last)
    return ScheduleState(schedule, progress, now)


def run(one: ScheduleState, *clock: int) -> list[int]:
    """Complete the ticks that are due at these times of the wall clock; return them."""
    done = []
    for now in clock:
        one.clock_set(now)
        while (tick := one.due(now, 0.0)) is not None:
            done.append(tick)
            one.completed(tick)
    return done


def test_each_tick_is_due_once_and_not_before_its_time() -> None:
    one = state()
    assert one.due(NOON + HOUR - 0.001, 0.0) is None
    assert one.wait_s(NOON + HOUR - 0.25, 0.0) == 0.25
    assert run(one, NOON + HOUR, NOON + HOUR, NOON + HOUR + 1) == [NOON + HOUR]
    assert run(one, NOON + 2 * HOUR) == [NOON + 2 * HOUR]


def test_only_one_put_is_under_way() -> None:
    one = state()
    one.under_way = True
    assert one.due(NOON + HOUR, 0.0) is None
    assert one.wait_s(NOON + HOUR, 0.0) == float("inf")


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [("one", [NOON]), ("all", [NOON - 2 * HOUR, NOON - HOUR, NOON]), ("none", [])],
)
def test_ticks_missed_before_a_start(catch_up: str, expected: list[int]) -> None:
    one = state(catch_up, last=NOON - 3 * HOUR)
    assert run(one, NOON + 60) == expected
    assert run(one, NOON + HOUR) == [NOON + HOUR]


@pytest.mark.parametrize("catch_up", ["one", "all", "none"])
def test_without_progress_no_tick_was_missed(catch_up: str) -> None:
    assert run(state(catch_up), NOON + 60) == []


@pytest.mark.parametrize("catch_up", ["one", "all", "none"])
def test_without_catch_up_a_tick_is_retried_all_the_same(catch_up: str) -> None:
    one = state(catch_up)
    assert one.due(NOON + HOUR, 0.0) == NOON + HOUR
    one.failed("OUT_OF_MEMORY", 0.0)
    assert one.due(NOON + HOUR + 1, 1.0) == NOON + HOUR


def test_ticks_skipped_while_the_server_drains() -> None:
    one = state("none")
    assert not one.skip(NOON + HOUR - 1)
    assert one.skip(NOON + HOUR + 1)
    assert run(one, NOON + HOUR + 2, NOON + 2 * HOUR) == [NOON + 2 * HOUR]


def test_retries_back_off_and_a_success_ends_them() -> None:
    one = state()
    waits = []
    mono = 0.0
    for attempt in range(12):
        assert one.due(NOON + HOUR, mono) is not None
        assert one.failed("DRAINING", mono) == (attempt == 0)
        assert one.due(NOON + HOUR, mono) is None
        waits.append(one.wait_s(NOON + HOUR, mono))
        mono += waits[-1]
    assert waits[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert waits[-1] == pytest.approx(MAX_RETRY_S)
    assert (one.error, one.status().errors) == ("DRAINING", 12)
    one.completed(NOON + HOUR)
    assert (one.error, one.status().errors, one.status().puts) == ("", 12, 1)
    assert one.due(NOON + 2 * HOUR, mono) == NOON + 2 * HOUR


def test_progress_continues_in_another_start() -> None:
    one = state()
    run(one, NOON + HOUR)
    later = ScheduleState(HOURLY, one.progress, NOON + HOUR + 5)
    assert run(later, NOON + HOUR + 5, NOON + 2 * HOUR) == [NOON + 2 * HOUR]
    assert one.status().last_put == NOON + HOUR
    assert ScheduleState(HOURLY, one.progress, NOON + HOUR + 5).status().last_put == NOON + HOUR


@pytest.mark.parametrize("other", [{"cron": "30 * * * *"}, {"timezone": "Asia/Kathmandu"}])
def test_other_ticks_start_now(other: dict[str, str]) -> None:
    changed = Schedule(**{"name": "hourly", "cron": "0 * * * *", "tube": "tube"} | other)
    one = ScheduleState(changed, Progress("0 * * * *", "UTC", NOON - DAY, NOON - DAY), NOON + 60)
    assert run(one, NOON + 60) == []
    running = state(last=NOON)
    running.change(changed, NOON + 60)
    assert run(running, NOON + 60) == []
    assert run(running, NOON + HOUR + 60) == run(one, NOON + HOUR + 60) != []


def test_another_body_continues_with_the_same_ticks() -> None:
    one = state(last=NOON - HOUR)
    one.change(replace(HOURLY, body="other"), NOON + 60)
    assert run(one, NOON + 60) == [NOON]
    assert one.schedule.body == "other"


def test_a_small_step_back_repeats_no_tick() -> None:
    one = state()
    assert run(one, NOON + HOUR, NOON - HOUR, NOON, NOON + HOUR) == [NOON + HOUR]


def test_a_large_step_back_continues_from_the_new_time() -> None:
    one = state()
    assert run(one, NOON + HOUR) == [NOON + HOUR]
    assert one.clock_set(NOON - DAY)
    assert not one.clock_set(NOON - DAY)
    assert run(one, NOON - DAY + HOUR) == [NOON - DAY + HOUR]


def test_a_clock_that_was_wrong_for_a_while_repeats_no_tick() -> None:
    """A machine without a battery starts in 1970, and gets the time from the network."""
    one = state(last=NOON, now=5)
    assert run(one, 5, 6) == []
    later = ScheduleState(HOURLY, one.progress, 7)
    assert run(later, 7, NOON + 60, NOON + HOUR) == [NOON + HOUR]


def test_a_clock_that_was_ahead_for_a_while() -> None:
    one = state()
    assert run(one, NOON + 5 * DAY) == [NOON + 5 * DAY]
    assert run(one, NOON + 61, NOON + HOUR) == [NOON + HOUR]
    clock = range(NOON + HOUR, NOON + 5 * DAY + HOUR + 1, 600)
    done = run(one, *clock)
    assert done[0] == NOON + 2 * HOUR
    assert done[-1] == NOON + 5 * DAY + HOUR
    assert len(done) == len(set(done))


def test_a_step_forward_is_like_missed_ticks() -> None:
    assert run(state("all"), NOON + 3 * HOUR) == [NOON + HOUR * number for number in (1, 2, 3)]
    assert run(state("one"), NOON + 3 * HOUR) == [NOON + 3 * HOUR]
