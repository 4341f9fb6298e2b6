"""Points in time on the command line: a date and time, or a duration before now."""

from __future__ import annotations

import datetime
import re
import time
from dataclasses import dataclass
from typing import Any

from beanstalkd_py.cli.argument_type import ArgumentType

NS_PER_S = 10**9
UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}

_AGO = re.compile(r"(\d{1,9})([smhd])")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class TimeType(ArgumentType):
    """Nanoseconds since the epoch, from ISO 8601 (default UTC) or from 90s, 15m, 2h, 3d ago."""

    name = "time"

    def parse(self, text: str) -> Any:
        if ago := _AGO.fullmatch(text):
            return time.time_ns() - int(ago[1]) * UNIT_S[ago[2]] * NS_PER_S
        try:
            parsed = datetime.datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(
                f"invalid time {text!r}; use 2026-11-21T15:00:00 (UTC),"
                " or a duration before now such as 15m or 2d"
            ) from None
        if parsed.tzinfo is None:
            parsed = parsed.replace(tzinfo=datetime.UTC)
        return (parsed - _EPOCH) // datetime.timedelta(microseconds=1) * 1000


@dataclass(frozen=True, slots=True)
class GivenTime:
    """A time, and its text in canonical form: nanoseconds, or the duration before now as given.

    The same text is another `wall_ns` when the command runs again.
    """

    wall_ns: int
    text: str


class GivenTimeType(TimeType):
    def parse(self, text: str) -> GivenTime:
        wall_ns = super().parse(text)
        return GivenTime(wall_ns, text if _AGO.fullmatch(text) else str(wall_ns))
