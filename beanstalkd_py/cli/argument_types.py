"""Types of options and arguments: numbers, sizes, durations, points in time."""

from __future__ import annotations

import datetime
import re
import time
from dataclasses import dataclass
from typing import Any

import click

from beanstalkd_py.quantities import (
    INT64_MAX,
    MAX_S,
    NONE,
    NS_PER_S,
    UNITS_S,
    bytes_of,
    duration_ns,
    float_or_nan,
    number_of,
    timeout_ns,
)

AUTO = "auto"
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
        return number_of(text, self._what, self._minimum, self._maximum)


class Limit(Number):
    """A number; "none" is 0, which means no limit."""

    def __init__(self, what: str, maximum: int = INT64_MAX) -> None:
        super().__init__(f"{what} or none", maximum=maximum)

    def parse(self, text: str) -> int:
        return 0 if text == NONE else super().parse(text)


class Bytes(ArgumentType):
    """Bytes with an optional binary unit K, M or G; "none" is 0, which means no limit."""

    name = "bytes"

    def __init__(self, minimum: int = 0) -> None:
        self._min_bytes = minimum

    def parse(self, text: str) -> int:
        return bytes_of(text, self._min_bytes)


class Seconds(ArgumentType):
    """A positive number of seconds, or 0 if `zero_allowed`."""

    name = "seconds"

    def __init__(self, zero_allowed: bool = False) -> None:
        self._zero_allowed = zero_allowed

    def parse(self, text: str) -> float:
        seconds = float_or_nan(text)
        if 0 < seconds <= MAX_S or (self._zero_allowed and seconds == 0):
            return seconds
        raise ValueError(f"invalid number of seconds {text!r}; use a number above 0")


class Timeout(ArgumentType):
    """Seconds, converted to nanoseconds; "none" is 0, which means no timeout."""

    name = "seconds"

    def parse(self, text: str) -> int:
        return timeout_ns(text)


class Duration(Timeout):
    """A timeout that also accepts 90s, 15m, 12h, 30d."""

    name = "time"

    def parse(self, text: str) -> int:
        return duration_ns(text)


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
        rate = float_or_nan(text)
        if not 1e-6 <= rate <= 1e9:
            raise ValueError(f"invalid rate {text!r}; use a number of jobs per second such as 50")
        return rate


class TimeType(ArgumentType):
    """Nanoseconds since the epoch, from ISO 8601 (default UTC) or from 90s, 15m, 2h, 3d ago."""

    name = "time"

    def parse(self, text: str) -> Any:
        if ago := _AGO.fullmatch(text):
            return time.time_ns() - int(ago[1]) * UNITS_S[ago[2]] * NS_PER_S
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
