"""Formats numbers, durations, sizes and times for axes, tables and text."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import pairwise

_DASH = "\N{EN DASH}"
NONE = _DASH
TIMES = "\N{NO-BREAK SPACE}\N{MULTIPLICATION SIGN}"
_THIN = "\N{NARROW NO-BREAK SPACE}"
_SI = ("", "k", "M", "G", "T", "P", "E")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_PER = (("s", 1.0), ("min", 60.0), ("h", 3600.0), ("day", 86400.0))
MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0


def digits(value: float, significant: int = 3) -> str:
    """Format significant digits without an exponent or trailing zeros."""
    if value == 0:
        return "0"
    text = f"{value:.{significant}g}"
    if "e" in text:
        text = f"{float(text):.12f}" if abs(value) < 1 else f"{float(text):.0f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def count(value: int) -> str:
    return f"{value:,}".replace(",", _THIN)


def short_count(value: float) -> str:
    """Format a number in a few characters: 950, 12.3k, 4.1M."""
    scaled, unit = abs(value), 0
    while scaled >= 999.5 and unit < len(_SI) - 1:
        scaled /= 1000
        unit += 1
    return ("-" if value < 0 else "") + digits(scaled) + _SI[unit]


def duration(seconds: float | None) -> str:
    """Format seconds in a fitting unit: 340 µs, 12.5 ms, 3.2 s, 4 min 10 s, 2 h 5 min, 3 d 4 h."""
    if seconds is None:
        return NONE
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 1e-3:
        return f"{digits(seconds * 1e6)} µs" if seconds else "0 s"
    if seconds < 0.9995:
        return f"{digits(seconds * 1e3)} ms"
    if seconds < 59.95:
        return f"{digits(seconds)} s"
    units = ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "min"), (1.0, "s"))
    if seconds >= 1000 * DAY_S:
        return f"{short_count(seconds / DAY_S)} d"
    for (size, name), (smaller, small_name) in pairwise(units):
        whole = round(seconds / smaller)
        per = round(size / smaller)
        if whole >= per:
            rest = whole % per
            return f"{whole // per} {name}" + (f" {rest} {small_name}" if rest else "")
    return f"{digits(seconds)} s"


def size(value: float | None) -> str:
    if value is None:
        return NONE
    scaled, unit = abs(float(value)), 0
    while scaled >= 1023.5 and unit < len(_BINARY) - 1:
        scaled /= 1024
        unit += 1
    text = f"{scaled:.0f}" if scaled >= 99.95 or unit == 0 else digits(scaled)
    return f"{'-' if value < 0 else ''}{text} {_BINARY[unit]}"


def share(part: float, whole: float) -> str:
    """Format percent; only 0 is 0 % and only the whole is 100 %."""
    if not whole:
        return NONE
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.1f} %" if 0 < percent < 99.95 else f"{percent:.0f} %"


def between(least: int, most: int, write: Callable[[int], str] = count) -> str:
    return write(least) if least == most else f"{write(least)}{_DASH}{write(most)}"


def per_unit(most_per_s: float) -> tuple[str, float]:
    """Return the unit for rates up to `most_per_s`, and its seconds."""
    for name, seconds in _PER:
        if most_per_s * seconds >= 1:
            return name, seconds
    return _PER[0] if most_per_s == 0 else _PER[-1]


def mean_rate(number: int, span_s: float) -> str:
    """Format the mean of a number of events; a time that is too short for it has none."""
    name, seconds = per_unit(number / span_s)
    if seconds > span_s:
        return f"in {duration(span_s)}"
    return f"{short_count(number / span_s * seconds)}/{name} on average"


def moment(time: datetime | None) -> str:
    return NONE if time is None else f"{date(time)} {time:%H:%M:%S}"


def date(time: datetime) -> str:
    return f"{time.day} {time:%b %Y}"


def span(begin: datetime, end: datetime) -> str:
    """Format a span, with a common date only once."""
    if begin.date() == end.date():
        return f"{date(begin)}, {begin:%H:%M:%S} {_DASH} {end:%H:%M:%S} UTC"
    return f"{date(begin)} {begin:%H:%M} {_DASH} {date(end)} {end:%H:%M} UTC"


def plural(number: int, noun: str, many: str | None = None) -> str:
    return f"{count(number)} {noun if number == 1 else many or noun + 's'}"
