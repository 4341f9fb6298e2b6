"""Numbers on the command line: digits only, within limits, and errors that say what to do."""

from __future__ import annotations

import math
import re

import click

from beanstalkd_py.cli.time_arguments import NS_PER_S, UNIT_S

INT64_MAX = 2**63 - 1
AUTO = "auto"
NONE = "none"
LONGEST_S = 10**9
SHORTEST_NS = 1_000_000

_DURATION = re.compile(r"(\d{1,12})([smhd])")


class Number(click.ParamType):  # type: ignore[type-arg]
    """A whole number from `minimum` to `maximum`; `what` completes 'give ...' in an error."""

    name = "number"

    def __init__(self, what: str, minimum: int = 0, maximum: int = INT64_MAX) -> None:
        self._what = what
        self._minimum = minimum
        self._maximum = maximum

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The number; fails as click's types do."""
        if isinstance(value, int):
            return value
        text = str(value)
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()):
            self.fail(f"{text!r} is not a number; give {self._what}", param, ctx)
        if text.startswith("-"):
            self.fail(f"{text} is negative; give at least {self._minimum}", param, ctx)
        # Compared by length first: converting a text of a million digits would take its time.
        if len(digits.lstrip("0")) > len(str(self._maximum)) or int(digits) > self._maximum:
            self.fail(f"{text[:40]} is too large; give at most {self._maximum}", param, ctx)
        if int(digits) < self._minimum:
            self.fail(f"{text} is too small; give at least {self._minimum}", param, ctx)
        return int(digits)


class Limit(Number):
    """A number from 1 on; 0 and the word none are no limit, which is 0."""

    def __init__(self, what: str, maximum: int = INT64_MAX) -> None:
        super().__init__(f"{what} or none", maximum=maximum)

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The number; fails as click's types do."""
        return 0 if value == NONE else super().convert(value, param, ctx)


class Bytes(Limit):
    """Bytes, with K, M or G for units of 1024, 1024 squared and so on; 0 and none are no limit."""

    def __init__(self, least: int = 0) -> None:
        super().__init__("a number of bytes such as 1048576, 1M")
        self._least = least

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The number; fails as click's types do."""
        text = str(value)
        power = "KMG".find(text[-1:].upper()) + 1 if text else 0
        if power and text[:-1].isdigit():
            number = super().convert(text[:-1], param, ctx) << 10 * power
            if number > INT64_MAX:
                self.fail(f"{text} is too large; give at most {INT64_MAX}", param, ctx)
        else:
            number = super().convert(value, param, ctx)
        if number < self._least:
            self.fail(f"{text} is too small; give at least {self._least}", param, ctx)
        return number


class Timeout(click.ParamType):  # type: ignore[type-arg]
    """Seconds, with a fraction if need be, as nanoseconds; 0 and none are never, which is 0."""

    name = "seconds"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The time; fails as click's types do."""
        if isinstance(value, int):
            return value
        text = str(value)
        if text == NONE:
            return 0
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds <= LONGEST_S:
            self.fail(f"{text!r} is no number of seconds; give one such as 30, or none", param, ctx)
        nanoseconds = round(seconds * 1e9)
        if 0 < nanoseconds < SHORTEST_NS:
            self.fail(f"{text} is too small; give at least 0.001", param, ctx)
        return nanoseconds


class Duration(Timeout):
    """As a timeout, and also 90s, 15m, 12h, 30d."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Nanoseconds; fails as click's types do."""
        if found := _DURATION.fullmatch(str(value)):
            seconds = int(found[1]) * UNIT_S[found[2]]
            if seconds <= LONGEST_S:
                return seconds * NS_PER_S
            self.fail(f"{value} is too long; give at most {LONGEST_S // UNIT_S['d']}d", param, ctx)
        return super().convert(value, param, ctx)


class NumberOrAuto(Number):
    """A number, or the word auto, which stands for the number `automatic`."""

    def __init__(self, what: str, automatic: int, minimum: int, maximum: int) -> None:
        super().__init__(f"{what} or auto", minimum, maximum)
        self._automatic = automatic

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The number; fails as click's types do."""
        return self._automatic if value == AUTO else super().convert(value, param, ctx)
