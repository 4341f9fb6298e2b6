"""The table of `top`: columns, order, and filter; as strings of a given width."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from beanstalkd_py.cli.formatting import short_number, short_rate, short_time

if TYPE_CHECKING:
    from beanstalkd_py.admin.tube_survey import TubeRow

Format = Callable[[Any, int], str]
_MIN_NAME = 12
"""Minimum width of tube names."""
_NAME_WITH_OPTIONAL_COLUMNS = 28
"""Minimum width of tube names beside columns after `oldest`."""


@dataclass(frozen=True)
class Column:
    """`name` selects the column for --sort, and so does pressing `key`, if it has one."""

    name: str
    heading: str
    field: str
    width: int
    format: Format
    key: str = ""

    def aligned(self, text: str) -> str:
        return text.ljust(self.width) if self.name == "tube" else text.rjust(self.width)

    def cell(self, row: TubeRow) -> str:
        return self.aligned(self.format(getattr(row, self.field), self.width))


def _time(value: float | None, _: int) -> str:
    return short_time(value)


def _name(value: str, width: int) -> str:
    return value if len(value) <= width else f"{value[: width - 1]}~"


COLUMNS = (
    Column("tube", "tube", "tube", _MIN_NAME, _name, "t"),
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
"""In order of importance. The columns up to `oldest` fit into 80 characters."""

BY_NAME = {column.name: column for column in COLUMNS}
BY_KEY = {column.key: column.name for column in COLUMNS if column.key}


@dataclass(frozen=True)
class Selection:
    """Filter and order of tubes: numbers descending, names ascending.

    `pattern` is a part of a name, or a glob if it has one of * ? [.
    """

    sort: str = "ready"
    reverse: bool = False
    pattern: str = ""

    def apply(self, rows: Sequence[TubeRow]) -> list[TubeRow]:
        """Return the matching tubes in order; equal ones by name."""
        selected = sorted((row for row in rows if self._matches(row.tube)), key=attrgetter("tube"))
        field = BY_NAME[self.sort].field
        if field == "tube":
            return selected[::-1] if self.reverse else selected
        # Unknown values come last in either order.
        known = [row for row in selected if getattr(row, field) is not None]
        known.sort(key=attrgetter(field), reverse=not self.reverse)
        return known + [row for row in selected if getattr(row, field) is None]

    def _matches(self, name: str) -> bool:
        if any(char in self.pattern for char in "*?["):
            return fnmatch.fnmatchcase(name, self.pattern)
        return self.pattern in name


def columns_for(width: int) -> list[Column]:
    """Return the columns for lines of `width` characters; names get the rest."""
    shown = [COLUMNS[0]]
    used, reserved = COLUMNS[0].width, 0
    for column in COLUMNS[1:]:
        if used + 1 + column.width + reserved > width:
            break
        used += 1 + column.width
        shown.append(column)
        if column.name == "oldest":
            reserved = _NAME_WITH_OPTIONAL_COLUMNS - _MIN_NAME
    name_width = min(200, shown[0].width + max(0, width - used))
    return [replace(shown[0], width=name_width), *shown[1:]]
