"""Parses durations in Spark's syntax: `10 seconds`, `1 hour 30 minutes`, `interval 1 day`.

Months and years are rejected, because their length varies. Imports nothing of Spark.
"""

from __future__ import annotations

import re

from beanstalkd_py.errors import PipelineUsageError

_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = r"(\d{1,12})\s+([a-z]+?)s?"
_WHOLE = re.compile(rf"(?:interval\s+)?{_PART}(?:\s+{_PART})*", re.IGNORECASE)
_LONGEST = 100 * 366 * _MICROSECONDS["day"]


def microseconds_of(name: str, text: str) -> int:
    """Parse the positive duration of option `name`. Raises PipelineUsageError."""
    plain = text.strip().lower()
    total = 0
    if _WHOLE.fullmatch(plain):
        parts = re.findall(rf"{_PART}(?=\s|$)", plain)
        if all(unit in _MICROSECONDS for _, unit in parts):
            total = sum(int(count) * _MICROSECONDS[unit] for count, unit in parts)
    if not 0 < total <= _LONGEST:
        known = ", ".join(f"{unit}s" for unit in _MICROSECONDS)
        raise PipelineUsageError(
            f"{name} {text!r} is not a duration; give a number and one of {known},"
            " such as '10 seconds' or '1 hour'"
        )
    return total
