"""Moments on the command line: a date and time, or how long ago."""

from __future__ import annotations

import datetime
import re
import time
from dataclasses import dataclass

import click

NS_PER_S = 10**9
UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}

_AGO = re.compile(r"(\d{1,9})([smhd])")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Moment(click.ParamType):  # type: ignore[type-arg]
    """Wall nanoseconds from ISO 8601, in UTC unless it says otherwise, or from 90s, 15m, 2h, 3d."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The nanoseconds since the epoch; fails as click's types do."""
        if isinstance(value, int):
            return value
        text = str(value)
        if ago := _AGO.fullmatch(text):
            return time.time_ns() - int(ago[1]) * UNIT_S[ago[2]] * NS_PER_S
        try:
            moment = datetime.datetime.fromisoformat(text)
        except ValueError:
            self.fail(
                f"{text!r} is no time; give one such as 2026-11-21T15:00:00 (UTC),"
                " or how long ago, such as 15m or 2d",
                param,
                ctx,
            )
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return (moment - _EPOCH) // datetime.timedelta(microseconds=1) * 1000


@dataclass(frozen=True, slots=True)
class Said:
    """A moment, and how it was said: a date and time in one form, or how long ago as it was given.

    `wall_ns` is of now; the same words mean another moment later, and are the same words.
    """

    wall_ns: int
    words: str


class SaidMoment(Moment):
    """The same, with its words."""

    def convert(  # type: ignore[override]
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Said:
        """The moment and its words; fails as click's types do."""
        if isinstance(value, Said):
            return value
        wall_ns = super().convert(value, param, ctx)
        return Said(wall_ns, str(value) if _AGO.fullmatch(str(value)) else str(wall_ns))
