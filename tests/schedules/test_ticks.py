"""Ticks of cron expressions, compared with a minute-by-minute search and with known dates."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from beanstalkd_py.schedules.ticks import Ticks, tick_text

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"


def local(zone: str, start: str, count: int, cron: str) -> list[str]:
    """Return the first ticks after a local time, as day, time and offset."""
    ticks = Ticks(cron, zone)
    moment = int(datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(zone)).timestamp())
    found = []
    for _ in range(count):
        following = ticks.after(moment)
        assert following is not None
        moment = following
        found.append(datetime.fromtimestamp(moment, ZoneInfo(zone)).strftime("%d %H:%M %z"))
    return found


@pytest.mark.parametrize(
    ("zone", "start", "cron", "expected"),
    [
        # Skipped hour: once, at its end.
        (BERLIN, "2026-03-28T12:00", "30 2 * * *", ["29 03:00 +0200", "30 02:30 +0200"]),
        (BERLIN, "2026-03-28T12:00", "0,30 2 * * *", ["29 03:00 +0200", "30 02:00 +0200"]),
        (NEW_YORK, "2026-03-07T12:00", "15 2 * * *", ["08 03:00 -0400", "09 02:15 -0400"]),
        (LORD_HOWE, "2026-10-03T12:00", "15 2 * * *", ["04 02:30 +1100", "05 02:15 +1100"]),
        # Repeated hour: once, in the first pass.
        (BERLIN, "2026-10-24T12:00", "30 2 * * *", ["25 02:30 +0200", "26 02:30 +0100"]),
        (NEW_YORK, "2026-10-31T12:00", "30 1 * * *", ["01 01:30 -0400", "02 01:30 -0500"]),
        (LORD_HOWE, "2026-04-04T12:00", "45 1 * * *", ["05 01:45 +1100", "06 01:45 +1030"]),
        # With * the ticks follow the wall clock.
        (BERLIN, "2026-03-29T01:10", "30 * * * *", ["29 01:30 +0100", "29 03:30 +0200"]),
        (BERLIN, "2026-10-25T01:50", "0 * * * *", ["25 02:00 +0200", "25 02:00 +0100"]),
        (BERLIN, "2026-10-25T02:20", "*/30 2 * * *", ["25 02:30 +0200", "25 02:00 +0100"]),
        (LORD_HOWE, "2026-10-04T01:30", "*/20 * * * *", ["04 01:40 +1030", "04 02:40 +1100"]),
        (LORD_HOWE, "2026-10-04T01:30", "*/20 3 * * *", ["04 03:00 +1100", "04 03:20 +1100"]),
        (LORD_HOWE, "2026-04-05T01:40", "*/20 2 * * *", ["05 02:00 +1030", "05 02:20 +1030"]),
    ],
)
def test_daylight_saving_time(zone: str, start: str, cron: str, expected: list[str]) -> None:
    assert local(zone, start, len(expected), cron) == expected


def test_a_start_in_the_second_pass_of_a_repeated_hour() -> None:
    moment = datetime(2026, 10, 25, 2, 15, fold=1, tzinfo=ZoneInfo(BERLIN))
    tick = Ticks("30 2 * * *", BERLIN).after(int(moment.timestamp()))
    assert tick is not None
    assert tick_text(tick) == "2026-10-26T01:30:00Z"


WALL_FIELDS = st.sampled_from(["*", "*/7", "*/30", "0-20/10", "5", "59"])
HOURS = st.sampled_from(["*", "*/2", "1-3", "2", "3", "0"])
ZONES = st.sampled_from([BERLIN, NEW_YORK, LORD_HOWE, "Asia/Kathmandu", "Africa/Casablanca"])
# All changes of these zones are on Sundays of these days in 2026.
DAYS = st.sampled_from(["2026-03-08", "2026-03-29", "2026-04-05", "2026-10-04", "2026-10-25"])


def matches(cron: str, wall: datetime) -> bool:
    """Return whether the wall clock matches, by cronsim without a zone."""
    return next(CronSim(cron, wall - timedelta(seconds=1))) == wall


@pytest.mark.costly
@given(WALL_FIELDS, HOURS, ZONES, DAYS, st.integers(0, 1440))
def test_ticks_with_stars_are_all_minutes_whose_wall_clock_matches(
    minutes: str, hours: str, zone: str, day: str, offset: int
) -> None:
    cron = f"{minutes} {hours} * * *"
    if not minutes.startswith("*") and not hours.startswith("*"):
        minutes, cron = "*", f"* {hours} * * *"
    start = int(datetime.fromisoformat(day).timestamp()) - 86400 + 60 * offset
    end = start + 2 * 86400
    utc = range(start - start % 60 + 60, end, 60)
    walls = ((at, datetime.fromtimestamp(at, ZoneInfo(zone)).replace(tzinfo=None)) for at in utc)
    wanted = [at for at, wall in walls if matches(cron, wall)]
    assert ticks_between(Ticks(cron, zone), start, end - 1) == wanted


def ticks_between(ticks: Ticks, after: int, until: int) -> list[int]:
    found = []
    moment: int | None = after
    while moment is not None and (moment := ticks.after(moment)) is not None and moment <= until:
        found.append(moment)
    return found


@pytest.mark.costly
@given(
    st.sampled_from(["30 2 * * *", "0,30 1-3 * * *", "*/15 * * * *", "0 0 1 * *", "* * 2 * * *"]),
    ZONES,
    st.integers(1_770_000_000, 1_800_000_000),
    st.integers(0, 3 * 86400),
)
def test_the_latest_tick_and_those_after_each_moment(
    cron: str, zone: str, after: int, span: int
) -> None:
    ticks = Ticks(cron, zone)
    between = ticks_between(ticks, after, after + span)
    assert ticks.latest(after, after + span) == (between[-1] if between else None)
    assert between == sorted(set(between))
    for first, second in itertools.pairwise(between):
        assert ticks.after((first + second) // 2) == second
        assert ticks.after(second - 1) == second


def test_the_latest_of_many_ticks_is_found_quickly() -> None:
    until = 1_800_000_000
    assert Ticks("* * * * *", BERLIN).latest(until - 10 * 365 * 86400, until) == until - until % 60


def test_six_fields_begin_with_seconds() -> None:
    assert ticks_between(Ticks("*/20 * * * * *", "UTC"), 119, 180) == [120, 140, 160, 180]


@pytest.mark.parametrize(
    ("cron", "zone", "words"),
    [
        ("61 * * * *", "UTC", "bad minute"),
        ("* * * *", "UTC", "wrong number of fields"),
        ("@daily", "UTC", "wrong number of fields"),
        ("", "UTC", "wrong number of fields"),
        ("0 0 31 2 *", "UTC", "bad day-of-month"),
        ("9" * 6000 + " * * * *", "UTC", "invalid cron expression"),
        ("0 0 * * *", "Europe/Bonn", "unknown time zone 'Europe/Bonn'; use an IANA name"),
        ("0 0 * * *", "", "unknown time zone"),
        ("0 0 * * *", "Europe", "unknown time zone"),
        ("0 0 * * *", "../../etc/passwd", "unknown time zone"),
        ("0 0 * * *", "/etc/passwd", "unknown time zone"),
        ("0 0 * * *", "a\0b", "unknown time zone"),
    ],
)
def test_errors(cron: str, zone: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        Ticks(cron, zone)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@given(st.text("0123456789*/-,#LWMONJAN? ", max_size=30))
def test_any_text_is_valid_or_a_value_error(text: str) -> None:
    try:
        Ticks(text, BERLIN).after(1_800_000_000)
    except ValueError as error:
        assert "\n" not in str(error)


def test_no_tick() -> None:
    assert Ticks("* * */20 * 1L", "UTC").after(1_800_000_000) is None


def test_zones_without_files_of_the_system() -> None:
    code = (
        "from beanstalkd_py.schedules.ticks import Ticks;"
        "print(Ticks('0 12 * * *', 'Europe/Berlin').after(1800000000))"
    )
    environment = {**os.environ, "PYTHONTZPATH": ""}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    tick = datetime.fromtimestamp(int(done.stdout), UTC)
    assert (tick.hour, tick.minute) == (11, 0)
