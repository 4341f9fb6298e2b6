"""Types of options and arguments: numbers, sizes, durations, points in time."""

from __future__ import annotations

import datetime
import math
import re
import time
from dataclasses import dataclass
from typing import Any

import click

NS_PER_S = 10**9
UINT32_MAX = 2**32 - 1
INT64_MAX = 2**63 - 1
AUTO = "auto"
NONE = "none"
_MAX_S = 10**9
_MIN_TIMEOUT_NS = 1_000_000

_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d{1,12})([smhd])")
_AGO = re.compile(r"(\d{1,9})([smhd])")
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class ArgumentType(click.ParamType):  # type: ignore[type-arg]
    """A type that `parse` converts; the message of its ValueError becomes a usage error."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value  # a default, or a value that was converted before
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def parse(self, text: str) -> Any:
        """Convert the text of the command line. Raises ValueError with a message for users."""
        raise NotImplementedError


class Number(ArgumentType):
    """An integer from `minimum` to `maximum`; `what` names it in errors: "a number of jobs"."""

    name = "n"

    def __init__(self, what: str, minimum: int = 0, maximum: int = INT64_MAX) -> None:
        self._what = what
        self._minimum = minimum
        self._maximum = maximum

    def parse(self, text: str) -> int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()):
            raise ValueError(f"invalid number {text!r}; use {self._what}")
        if text.startswith("-"):
            raise ValueError(f"{text} is negative; the minimum is {self._minimum}")
        # The length is compared first, because converting a million digits takes long.
        if len(digits.lstrip("0")) > len(str(self._maximum)) or int(digits) > self._maximum:
            raise ValueError(f"{text[:40]} is too large; the maximum is {self._maximum}")
        if int(digits) < self._minimum:
            raise ValueError(f"{text} is too small; the minimum is {self._minimum}")
        return int(digits)


class Limit(Number):
    """A number; "none" is 0, which means no limit."""

    def __init__(self, what: str, maximum: int = INT64_MAX) -> None:
        super().__init__(f"{what} or none", maximum=maximum)

    def parse(self, text: str) -> int:
        return 0 if text == NONE else super().parse(text)


class Bytes(Limit):
    """Bytes with an optional binary unit K, M or G; "none" is 0, which means no limit."""

    name = "bytes"

    def __init__(self, minimum: int = 0) -> None:
        super().__init__("a number of bytes such as 1048576, 1M")
        self._min_bytes = minimum

    def parse(self, text: str) -> int:
        power = "KMG".find(text[-1:].upper()) + 1 if text else 0
        if power and text[:-1].isdigit():
            number = super().parse(text[:-1]) << 10 * power
            if number > INT64_MAX:
                raise ValueError(f"{text} is too large; the maximum is {INT64_MAX}")
        else:
            number = super().parse(text)
        if number < self._min_bytes:
            problem = "this limit is required" if text == NONE else f"{text} is too small"
            raise ValueError(f"{problem}; the minimum is {self._min_bytes}")
        return number


def _float_or_nan(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


class Seconds(ArgumentType):
    """A positive number of seconds, or 0 if `zero_allowed`."""

    name = "seconds"

    def __init__(self, zero_allowed: bool = False) -> None:
        self._zero_allowed = zero_allowed

    def parse(self, text: str) -> float:
        seconds = _float_or_nan(text)
        if 0 < seconds <= _MAX_S or (self._zero_allowed and seconds == 0):
            return seconds
        raise ValueError(f"invalid number of seconds {text!r}; use a number above 0")


class Timeout(ArgumentType):
    """Seconds, converted to nanoseconds; "none" is 0, which means no timeout."""

    name = "seconds"

    def parse(self, text: str) -> int:
        if text == NONE:
            return 0
        seconds = _float_or_nan(text)
        if not 0 <= seconds <= _MAX_S:
            raise ValueError(
                f"invalid number of seconds {text!r}; use a number such as 30, or none"
            )
        nanoseconds = round(seconds * 1e9)
        if 0 < nanoseconds < _MIN_TIMEOUT_NS:
            raise ValueError(f"{text} is too small; the minimum is 0.001")
        return nanoseconds


class Duration(Timeout):
    """A timeout that also accepts 90s, 15m, 12h, 30d."""

    name = "time"

    def parse(self, text: str) -> int:
        if match := _DURATION.fullmatch(text):
            seconds = int(match[1]) * _UNIT_S[match[2]]
            if seconds <= _MAX_S:
                return seconds * NS_PER_S
            raise ValueError(f"{text} is too long; the maximum is {_MAX_S // _UNIT_S['d']}d")
        return super().parse(text)


class NumberOrAuto(Number):
    """A number, or "auto", which stands for the number `automatic`."""

    def __init__(self, what: str, automatic: int, minimum: int, maximum: int) -> None:
        super().__init__(f"{what} or auto", minimum, maximum)
        self._automatic = automatic

    def parse(self, text: str) -> int:
        return self._automatic if text == AUTO else super().parse(text)


class Rate(ArgumentType):
    """Jobs per second, at least 1e-6."""

    name = "jobs"

    def parse(self, text: str) -> float:
        rate = _float_or_nan(text)
        if not 1e-6 <= rate <= 1e9:
            raise ValueError(f"invalid rate {text!r}; use a number of jobs per second such as 50")
        return rate


class TimeType(ArgumentType):
    """Nanoseconds since the epoch, from ISO 8601 (default UTC) or from 90s, 15m, 2h, 3d ago."""

    name = "time"

    def parse(self, text: str) -> Any:
        if ago := _AGO.fullmatch(text):
            return time.time_ns() - int(ago[1]) * _UNIT_S[ago[2]] * NS_PER_S
        try:
            parsed = datetime.datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(
                f"invalid time {text!r}; use 2026-11-21T15:00:00 (UTC),"
                " or a duration before now such as 15m or 2d"
            ) from None
        if parsed.tzinfo is None:
            parsed = parsed.replace(tzinfo=datetime.UTC)
        return (parsed - EPOCH) // datetime.timedelta(microseconds=1) * 1000


@dataclass(frozen=True, slots=True)
class TimeArgument:
    """A time and its text: nanoseconds, or a duration before now, which differs in each run."""

    wall_ns: int
    text: str


class TimeArgumentType(TimeType):
    def parse(self, text: str) -> TimeArgument:
        wall_ns = super().parse(text)
        return TimeArgument(wall_ns, text if _AGO.fullmatch(text) else str(wall_ns))
