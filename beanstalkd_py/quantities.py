"""Texts of numbers, sizes and times, as options, files and forms have them, and their units."""

from __future__ import annotations

import math
import re

NS_PER_S = 10**9
UINT32_MAX = 2**32 - 1
INT64_MAX = 2**63 - 1
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
NONE = "none"
MAX_S = 10**9
_MIN_TIMEOUT_NS = 1_000_000
_DURATION = re.compile(r"(\d{1,12})([smhd])")


def number_of(text: str, what: str, minimum: int = 0, maximum: int = INT64_MAX) -> int:
    """Return an integer; `what` names it in errors: "a number of jobs". Raises ValueError."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"invalid number {text!r}; use {what}")
    if text.startswith("-"):
        raise ValueError(f"{text} is negative; the minimum is {minimum}")
    # The length is compared first, because converting a million digits takes long.
    if len(digits.lstrip("0")) > len(str(maximum)) or int(digits) > maximum:
        raise ValueError(f"{text[:40]} is too large; the maximum is {maximum}")
    if int(digits) < minimum:
        raise ValueError(f"{text} is too small; the minimum is {minimum}")
    return int(digits)


def bytes_of(text: str, minimum: int = 0) -> int:
    """Return the bytes of 1048576, 1024K, 1M or 1G; of "none" 0, no limit. Raises ValueError."""
    what = "a number of bytes such as 1048576, 1M or none"
    power = "KMG".find(text[-1:].upper()) + 1 if text else 0
    if text == NONE:
        size = 0
    elif power and text[:-1].isdigit():
        size = number_of(text[:-1], what) << 10 * power
        if size > INT64_MAX:
            raise ValueError(f"{text} is too large; the maximum is {INT64_MAX}")
    else:
        size = number_of(text, what)
    if size < minimum:
        problem = "this limit is required" if text == NONE else f"{text} is too small"
        raise ValueError(f"{problem}; the minimum is {minimum}")
    return size


def float_or_nan(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def timeout_ns(text: str) -> int:
    """Return the nanoseconds of seconds such as 0.5; of "none" 0, no timeout. Raises ValueError."""
    if text == NONE:
        return 0
    seconds = float_or_nan(text)
    if not 0 <= seconds <= MAX_S:
        raise ValueError(f"invalid number of seconds {text!r}; use a number such as 30, or none")
    nanoseconds = round(seconds * 1e9)
    if 0 < nanoseconds < _MIN_TIMEOUT_NS:
        raise ValueError(f"{text} is too small; the minimum is 0.001")
    return nanoseconds


def duration_ns(text: str) -> int:
    """Return the nanoseconds of a timeout, or of 90s, 15m, 12h or 30d. Raises ValueError."""
    if match := _DURATION.fullmatch(text):
        seconds = int(match[1]) * UNITS_S[match[2]]
        if seconds <= MAX_S:
            return seconds * NS_PER_S
        raise ValueError(f"{text} is too long; the maximum is {MAX_S // UNITS_S['d']}d")
    return timeout_ns(text)


def whole_seconds(text: str, minimum: int) -> int:
    """Return the seconds of a duration, UINT32_MAX at most. Raises ValueError."""
    nanoseconds = duration_ns(text)
    if nanoseconds % NS_PER_S or not minimum * NS_PER_S <= nanoseconds:
        raise ValueError(f"invalid time {text!r}; use whole seconds, at least {minimum}")
    return min(nanoseconds // NS_PER_S, UINT32_MAX)
