"""Durations in Spark's syntax, and points in time, as microseconds. Imports nothing of Spark.

A duration is `10 seconds`, `1 hour 30 minutes` or `interval 1 day`. Months and years are rejected,
because their length varies.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

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
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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


def since_1970(name: str, time: datetime | None) -> int | None:
    """Convert the time of option `name`. Raises PipelineUsageError for a time without a zone."""
    if time is None:
        return None
    if time.tzinfo is None:
        raise PipelineUsageError(f"{name} {time} has no time zone; give one, such as UTC")
    return int((time - _EPOCH) // timedelta(microseconds=1))
