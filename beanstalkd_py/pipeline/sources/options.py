"""Checked options of a source. Names are case-insensitive, as in Spark's own sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sources.read_modes import CORRUPT, Mode

OF_SPARK = ("path", "paths", "__paths__")
"""Options that Spark adds."""

TABLE_OPTION_PREFIX = "option."
"""Prefix of a copy of each option of a table; other names are properties of the table."""

MAY_BE_EMPTY = (*OF_SPARK, "host")
"""An empty `host` means an unknown one."""

LONGEST_S = 1_000_000
"""The sum of a wait and a timeout has to fit into poll(), which takes milliseconds as an int."""

STREAM_OPTIONS = (
    "failOnDataLoss",
    "maxBytesPerTrigger",
    "maxFilesPerTrigger",
    "maxOffsetsPerTrigger",
    "startingOffsets",
)
"""Options of a stream besides those of its plan."""

TARGET_BYTES = 128 << 20
"""Default size of a task, as in Spark's own file sources."""


class Options:
    """Options of a read or write. The constructor and methods raise PipelineUsageError."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        names = {name.lower(): name for name in known}
        given = without_properties(given)
        unknown = [name for name in given if name.lower() not in {*names, *OF_SPARK}]
        if unknown:
            listed = ", ".join(sorted(names.values()))
            raise PipelineUsageError(f"no option {unknown[0]!r}; there are {listed}")
        for name, value in given.items():
            if not value.strip() and name.lower() not in MAY_BE_EMPTY:
                # Probably a shell variable that was not set: the default would hide that.
                shown = names.get(name.lower(), name)
                raise PipelineUsageError(f"{shown} is empty; give a value, or leave it out")
        self.given = dict(given)
        self._values = {name.lower(): value for name, value in given.items()}

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def names(self, name: str) -> list[str] | None:
        value = self.text(name)
        if value is None:
            return None
        return [each.strip() for each in value.split(",") if each.strip()]

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise PipelineUsageError(f"{name} {value!r} is neither true nor false")
        return value.lower() == "true"

    def number(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not value.strip().isdecimal() or int(value) < 1:
            raise PipelineUsageError(f"{name} {value!r} is not a whole number above 0")
        return int(value)

    def whole(self, name: str, default: int, most: int) -> int:
        value = (self.text(name) or str(default)).strip()
        if not value.isdecimal() or int(value) > most:
            raise PipelineUsageError(f"{name} {value!r} is not a whole number from 0 to {most}")
        return int(value)

    def seconds(self, name: str, default_s: float) -> float:
        value = self.text(name)
        try:
            seconds = default_s if value is None else float(value)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds <= LONGEST_S:
            raise PipelineUsageError(
                f"{name} {value!r} is not a number of seconds above 0, at most {LONGEST_S}"
            )
        return seconds

    def size(self, name: str, default: int) -> int:
        """Parse bytes with an optional suffix k, m or g."""
        value = (self.text(name) or "").lower().removesuffix("b")
        if not value:
            return default
        unit = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}.get(value[-1], 1)
        digits = value[:-1] if unit > 1 else value
        if not digits.isdecimal() or int(digits) < 1:
            raise PipelineUsageError(f"{name} {self.text(name)!r} is not a size such as 128m")
        return int(digits) * unit

    @property
    def mode(self) -> Mode:
        return Mode.of(self.text("mode") or Mode.PERMISSIVE.value)

    @property
    def corrupt(self) -> str:
        return self.text("columnNameOfCorruptRecord") or CORRUPT


def is_of_table(given: Mapping[str, str]) -> bool:
    """Whether these are the options of a table in Spark's catalog."""
    return any(name.lower() == "provider" for name in given)


def without_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options without the properties of a table that Spark passes among them."""
    if not is_of_table(given):
        return dict(given)
    lower = {name.lower() for name in given}
    return {
        name: value
        for name, value in given.items()
        if name.lower() in OF_SPARK or TABLE_OPTION_PREFIX + name.lower() in lower
    }


def option_text(value: object) -> str:
    """Format a value as Spark passes it to a source."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(str(each) for each in value)
    return str(value)
