"""The tubes of a survey as `top` shows them: columns, order, and what is left out.

Must not know terminals: it makes texts of a given width.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from beanstalkd_py.admin.tube_survey import TubeRow
from beanstalkd_py.cli.formatting import short_number, short_rate, short_time

Show = Callable[[Any, int], str]
_LEAST_NAME = 12
_USUAL_NAME = 28
"""Columns that are not always shown leave so much to the names of tubes."""
"""Characters for the name of a tube."""


@dataclass(frozen=True)
class Column:
    """`name` is for options and keys, `key` is the letter that sorts by it, if it has one."""

    name: str
    heading: str
    field: str
    width: int
    show: Show
    key: str = ""


def _time(value: float | None, _: int) -> str:
    return short_time(value)


def _name(value: str, width: int) -> str:
    return value if len(value) <= width else f"{value[: width - 1]}~"


COLUMNS = (
    Column("tube", "tube", "tube", _LEAST_NAME, _name, "t"),
    Column("puts", "put/s", "puts_per_s", 6, short_rate, "p"),
    Column("reserves", "res/s", "reserves_per_s", 6, short_rate, "e"),
    Column("deletes", "del/s", "deletes_per_s", 6, short_rate, "d"),
    Column("ready", "ready", "ready", 6, short_number, "r"),
    Column("reserved", "reserved", "reserved", 8, short_number, "v"),
    Column("delayed", "delayed", "delayed", 7, short_number, "y"),
    Column("buried", "buried", "buried", 6, short_number, "b"),
    Column("waiting", "wait", "waiting", 5, short_number, "w"),
    Column("oldest", "oldest", "oldest_ready_s", 6, _time, "o"),
    Column("urgent", "urgent", "urgent", 6, short_number, "u"),
    Column("using", "using", "using", 6, short_number),
    Column("watching", "watching", "watching", 8, short_number),
    Column("paused", "paused", "paused_s", 6, _time),
    Column("total", "total", "total", 9, short_number),
)
"""The first ones are shown in any width; they fit into 80 characters up to `oldest`."""

BY_NAME = {column.name: column for column in COLUMNS}
BY_KEY = {column.key: column.name for column in COLUMNS if column.key}


@dataclass(frozen=True)
class Choice:
    """Which tubes, and in which order: numbers from the largest on, names from a to z.

    `pattern` is a part of a name, or a glob if it has one of * ? [.
    """

    sort: str = "ready"
    reverse: bool = False
    pattern: str = ""

    def apply(self, rows: Sequence[TubeRow]) -> list[TubeRow]:
        """Those that match, in order; among equals by name."""
        found = sorted((row for row in rows if self._matches(row.tube)), key=attrgetter("tube"))
        field = BY_NAME[self.sort].field
        if field == "tube":
            return found[::-1] if self.reverse else found
        # What is not known comes last, whichever way round.
        known = [row for row in found if getattr(row, field) is not None]
        known.sort(key=attrgetter(field), reverse=not self.reverse)
        return known + [row for row in found if getattr(row, field) is None]

    def _matches(self, name: str) -> bool:
        if any(char in self.pattern for char in "*?["):
            return fnmatch.fnmatchcase(name, self.pattern)
        return self.pattern in name


@dataclass(frozen=True)
class Layout:
    """Columns that fit, and how wide each is."""

    columns: tuple[Column, ...]
    widths: tuple[int, ...]

    @classmethod
    def fitting(cls, width: int) -> Layout:
        """For lines of `width` characters; what is left over is for names."""
        used, taken = COLUMNS[0].width, 1
        spare = 0
        for column in COLUMNS[1:]:
            if used + 1 + column.width + spare > width:
                break
            used += 1 + column.width
            taken += 1
            if column.name == "oldest":
                spare = _USUAL_NAME - _LEAST_NAME
        name = min(200, COLUMNS[0].width + max(0, width - used))
        shown = COLUMNS[:taken]
        return cls(shown, (name, *(column.width for column in shown[1:])))

    def headings(self) -> list[str]:
        """As wide as their columns."""
        return [self._aligned(at, column.heading) for at, column in enumerate(self.columns)]

    def cells(self, row: TubeRow) -> list[str]:
        """The same for a tube."""
        return [
            self._aligned(at, column.show(getattr(row, column.field), self.widths[at]))
            for at, column in enumerate(self.columns)
        ]

    def _aligned(self, at: int, text: str) -> str:
        width = self.widths[at]
        return text.ljust(width) if at == 0 else text.rjust(width)
