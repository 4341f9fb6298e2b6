"""Numbers on the command line: ASCII digits within limits."""

from __future__ import annotations

import math
import re

from beanstalkd_py.cli.argument_type import ArgumentType
from beanstalkd_py.cli.time_arguments import NS_PER_S, UNIT_S

INT64_MAX = 2**63 - 1
AUTO = "auto"
NONE = "none"
MAX_S = 10**9
MIN_NS = 1_000_000

_DURATION = re.compile(r"(\d{1,12})([smhd])")


class Number(ArgumentType):
    """An integer from `minimum` to `maximum`; `what` names it in errors: "a number of jobs"."""

    name = "number"

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
    """A positive number; 0 and "none" are no limit, which is 0."""

    def __init__(self, what: str, maximum: int = INT64_MAX) -> None:
        super().__init__(f"{what} or none", maximum=maximum)

    def parse(self, text: str) -> int:
        return 0 if text == NONE else super().parse(text)


class Bytes(Limit):
    """Bytes with an optional binary unit K, M or G; 0 and "none" are no limit, which is 0."""

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
            raise ValueError(f"{text} is too small; the minimum is {self._min_bytes}")
        return number


class Timeout(ArgumentType):
    """Seconds, with an optional fraction, as nanoseconds; 0 and "none" are never, which is 0."""

    name = "seconds"

    def parse(self, text: str) -> int:
        if text == NONE:
            return 0
        seconds = parse_float(text)
        if not 0 <= seconds <= MAX_S:
            raise ValueError(
                f"invalid number of seconds {text!r}; use a number such as 30, or none"
            )
        nanoseconds = round(seconds * 1e9)
        if 0 < nanoseconds < MIN_NS:
            raise ValueError(f"{text} is too small; the minimum is 0.001")
        return nanoseconds


class Duration(Timeout):
    """A timeout that also accepts 90s, 15m, 12h, 30d."""

    name = "time"

    def parse(self, text: str) -> int:
        if found := _DURATION.fullmatch(text):
            seconds = int(found[1]) * UNIT_S[found[2]]
            if seconds <= MAX_S:
                return seconds * NS_PER_S
            raise ValueError(f"{text} is too long; the maximum is {MAX_S // UNIT_S['d']}d")
        return super().parse(text)


class NumberOrAuto(Number):
    """A number, or "auto", which stands for the number `automatic`."""

    def __init__(self, what: str, automatic: int, minimum: int, maximum: int) -> None:
        super().__init__(f"{what} or auto", minimum, maximum)
        self._automatic = automatic

    def parse(self, text: str) -> int:
        return self._automatic if text == AUTO else super().parse(text)


def parse_float(text: str) -> float:
    """Return the number, NaN for an invalid one."""
    try:
        return float(text)
    except ValueError:
        return math.nan
