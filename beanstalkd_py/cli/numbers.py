"""Numbers on the command line: digits only, within limits, and errors that say what to do."""

from __future__ import annotations

from collections.abc import Callable

import click

INT64_MAX = 2**63 - 1
AUTO = "auto"


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


class NumberOrAuto(Number):
    """A number, or the word auto for what `automatic` gives when asked."""

    def __init__(self, what: str, automatic: Callable[[], int], minimum: int, maximum: int) -> None:
        super().__init__(f"{what} or auto", minimum, maximum)
        self._automatic = automatic

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The number; fails as click's types do."""
        return self._automatic() if value == AUTO else super().convert(value, param, ctx)
