"""Ticks and labels of axes: linear, logarithmic durations, and clock times. Draws nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from beanstalkd_py.pipeline.report.numbers import DAY_S, HOUR_S, MINUTE_S, duration, size

Write = Callable[[float], str]

_CLOCK_S = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(MINUTE_S * n for n in (1, 2, 5, 10, 15, 30)),
    *(HOUR_S * n for n in (1, 2, 3, 6, 12)),
    *(DAY_S * n for n in (1, 2, 7, 14)),
)
_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600)
_DURATIONS_S = (
    *(1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0),
    *(MINUTE_S, 10 * MINUTE_S, HOUR_S, 10 * HOUR_S),
    *(4 * DAY_S, 40 * DAY_S, 400 * DAY_S, 4000 * DAY_S),
)
_MOST_DECADES = 7


@dataclass(frozen=True, slots=True)
class Tick:
    """A value with its label; `second` is a second line, such as the date."""

    value: float
    text: str
    second: str = ""


@dataclass(frozen=True, slots=True)
class Axis:
    low: float
    high: float
    ticks: tuple[Tick, ...]
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """Map a value to 0 at `low` up to 1 at `high`; clamp it outside."""
        if self.logarithmic:
            value = max(value, self.low)
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, part))


def linear(
    most: float, write: Write, intervals: int = 4, whole: bool = False, unit: float = 1.0
) -> Axis:
    """Return an axis from 0 to a round number of units; `whole`: ticks are whole numbers."""
    most = max(most / unit, 1.0 if whole else 1e-12)
    step = _round_step(most / intervals)
    if whole:
        step = max(1.0, step)
    steps = max(1, math.ceil(most / step - 1e-9))
    values = [i * step * unit for i in range(steps + 1)]
    return Axis(0.0, values[-1], tuple(Tick(value, write(value)) for value in values))


def of_sizes(most: float, intervals: int = 4) -> Axis:
    unit = 1024.0 ** max(0, int(math.log(max(most, 1.0), 1024)))
    return linear(max(most, 1.0), size, intervals, whole=unit == 1, unit=unit)


def of_durations(least: float, most: float, logarithmic: bool) -> Axis:
    if logarithmic:
        return _decades(least, most)
    most = max(most, 1e-6)
    unit = next((u for u in (DAY_S, HOUR_S, MINUTE_S) if most >= 2 * u), 1.0)
    return linear(most, duration, unit=unit)


def _decades(least: float, most: float) -> Axis:
    low = max((d for d in _DURATIONS_S if d <= least), default=_DURATIONS_S[0])
    high = min((d for d in _DURATIONS_S if d >= most), default=_DURATIONS_S[-1])
    if high <= low:
        high = next((d for d in _DURATIONS_S if d > low), low * 10)
    inside = [d for d in _DURATIONS_S if low <= d <= high]
    each = -(-len(inside) // _MOST_DECADES)
    return Axis(low, high, tuple(Tick(d, duration(d)) for d in inside[::each]), logarithmic=True)


def of_clock(begin: datetime, end: datetime, most_ticks: int) -> Axis:
    """Return an axis of UTC times, in seconds since 1970; the date is below the first of a day."""
    low, high = begin.timestamp(), end.timestamp()
    if high <= low:
        high = low + 1
    step = next((s for s in _CLOCK_S if (high - low) / s <= most_ticks), None)
    if step is None:
        return Axis(low, high, _months(begin, end, most_ticks))
    if high - low < 2:
        step = _round_step((high - low) / most_ticks)
    first = math.ceil(low / step - 1e-9)
    ticks: list[Tick] = []
    for value in (n * step for n in range(first, math.floor(high / step + 1e-9) + 1)):
        ticks.append(_clock_tick(value, step, ticks[-1].value if ticks else None))
    return Axis(low, high, tuple(ticks))


def _clock_tick(value: float, step: float, before: float | None) -> Tick:
    time = datetime.fromtimestamp(value, UTC)
    day = f"{time.day} {time:%b}"
    if step >= DAY_S:
        is_new = before is None or datetime.fromtimestamp(before, UTC).year != time.year
        return Tick(value, day, str(time.year) if is_new else "")
    is_new = before is None or datetime.fromtimestamp(before, UTC).date() != time.date()
    if step >= MINUTE_S:
        text = f"{time:%H:%M}"
    elif step >= 1:
        text = f"{time:%H:%M:%S}"
    else:
        text = f"{time:%S}.{time.microsecond // 1000:03d}"
        day = f"{day} {time:%H:%M}"
    return Tick(value, text, day if is_new else "")


def _months(begin: datetime, end: datetime, most_ticks: int) -> tuple[Tick, ...]:
    months = (end.year - begin.year) * 12 + end.month - begin.month + 1
    step = next((m for m in _MONTHS if months / m <= most_ticks), _MONTHS[-1])
    number = begin.year * 12 + begin.month - 1
    number += -number % step
    ticks: list[Tick] = []
    while True:
        time = datetime(number // 12, number % 12 + 1, 1, tzinfo=UTC)
        if time > end:
            return tuple(ticks)
        year = str(time.year)
        if time >= begin:
            second = "" if ticks and time.month != 1 else year
            text = f"{time:%b}" if step < 12 else year
            ticks.append(Tick(time.timestamp(), text, second if step < 12 else ""))
        number += step


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(n * power for n in (1.0, 2.0, 2.5, 5.0, 10.0) if n * power >= step - 1e-12 * power)
