"""Options of a source, as strings that Spark hands over, checked once and for all.

Names are those of Spark's own sources where they have one; case does not count, as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sources.read_modes import CORRUPT, Mode

OF_SPARK = ("path", "paths", "__paths__")
"""Spark's own, besides those of a source."""

MAY_BE_EMPTY = (*OF_SPARK, "host")
"""`host`: nobody says which it is."""

LONGEST_S = 1_000_000
"""Eleven days; poll() counts milliseconds in an int, and a wait and a timeout are added."""

STREAM_OPTIONS = (
    "failOnDataLoss",
    "maxBytesPerTrigger",
    "maxFilesPerTrigger",
    "maxOffsetsPerTrigger",
    "startingOffsets",
)
"""Besides, of a stream."""


TARGET_BYTES = 128 << 20
"""Of files for one task, as Spark's own file sources have it."""


class Options:
    """What a source was given. Raises PipelineUsageError for what it does not know."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        names = {name.lower(): name for name in known}
        unknown = [name for name in given if name.lower() not in {*names, *OF_SPARK}]
        if unknown:
            listed = ", ".join(sorted(names.values()))
            raise PipelineUsageError(f"no option {unknown[0]!r}; there are {listed}")
        for name, value in given.items():
            if not value.strip() and name.lower() not in MAY_BE_EMPTY:
                # A variable that was not set, most likely; what is usual would be something else.
                said = names.get(name.lower(), name)
                raise PipelineUsageError(f"{said} is empty; give a value, or leave it out")
        self.given = dict(given)
        self._values = {name.lower(): value for name, value in given.items()}

    def text(self, name: str) -> str | None:
        """None: it was not given."""
        return self._values.get(name.lower())

    def names(self, name: str) -> list[str] | None:
        """With commas between."""
        value = self.text(name)
        if value is None:
            return None
        return [each.strip() for each in value.split(",") if each.strip()]

    def flag(self, name: str, default: bool) -> bool:
        """`true` or `false`."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise PipelineUsageError(f"{name} {value!r} is neither true nor false")
        return value.lower() == "true"

    def number(self, name: str) -> int | None:
        """At least 1."""
        value = self.text(name)
        if value is None:
            return None
        if not value.strip().isdecimal() or int(value) < 1:
            raise PipelineUsageError(f"{name} {value!r} is no number from 1 on")
        return int(value)

    def whole(self, name: str, default: int, most: int) -> int:
        """From 0 to `most`."""
        value = (self.text(name) or str(default)).strip()
        if not value.isdecimal() or int(value) > most:
            raise PipelineUsageError(f"{name} {value!r} is no whole number from 0 to {most}")
        return int(value)

    def seconds(self, name: str, default_s: float) -> float:
        """Above 0, up to LONGEST_S; it may have a fraction."""
        value = self.text(name)
        try:
            seconds = default_s if value is None else float(value)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds <= LONGEST_S:
            raise PipelineUsageError(
                f"{name} {value!r} is no number of seconds above 0, {LONGEST_S} at most"
            )
        return seconds

    def size(self, name: str, default: int) -> int:
        """Bytes, with k, m or g behind it if need be."""
        value = (self.text(name) or "").lower().removesuffix("b")
        if not value:
            return default
        unit = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}.get(value[-1], 1)
        digits = value[:-1] if unit > 1 else value
        if not digits.isdecimal() or int(digits) < 1:
            raise PipelineUsageError(f"{name} {self.text(name)!r} is no size, such as 128m")
        return int(digits) * unit

    @property
    def mode(self) -> Mode:
        """What is done about damage; one bad file never fails a job unless that is asked for."""
        return Mode.of(self.text("mode") or Mode.PERMISSIVE.value)

    @property
    def corrupt(self) -> str:
        """The name of the corrupt column."""
        return self.text("columnNameOfCorruptRecord") or CORRUPT


def option_text(value: object) -> str:
    """A value as Spark hands it to a source: names with commas between, `true` and `false`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(str(each) for each in value)
    return str(value)
