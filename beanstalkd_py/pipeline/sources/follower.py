"""What following files has in common, whatever is in them: budgets, and faults that may be none.

In a file that is being written a fault is looked at again before it is believed.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from beanstalkd_py.errors import DataLossError, PipelineUsageError

RETRIES = 3
RETRY_S = 0.02


Place = dict[str, Any]
"""Numbers that say what is next, and `head`, by which its file is known again, if it is known."""
Position = dict[str, Place]
"""A place for each folder of binlogs, or for each store."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much there may be between two positions; None: no limit."""

    files: int | None = None
    rows: int | None = None
    size: int | None = None

    def share(self, of: int) -> Budget:
        """An even part, at least one of each."""

        def part(value: int | None) -> int | None:
            return None if value is None else max(1, -(-value // of))

        return Budget(part(self.files), part(self.rows), part(self.size))

    def less(self, rows: int, size: int) -> Budget:
        """What is left after so much of one file."""
        return Budget(
            None if self.files is None else self.files - 1,
            None if self.rows is None else self.rows - rows,
            None if self.size is None else self.size - size,
        )

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return any(left is not None and left <= 0 for left in (self.files, self.rows, self.size))


UNLIMITED = Budget()

REMOVED = "it was removed before it was read"
ANEW = "what it had before may not have been read to its end"
HEAD_BYTES = 300
"""By which a file is known again; nothing changes what was once read of it."""


def head_of(path: str, length: int) -> str | None:
    """What tells a file from others of its name: of its first bytes. None: it is not there."""
    try:
        with open(path, "rb") as data:  # noqa: PTH123 - a path is text here
            return f"{zlib.crc32(data.read(length).ljust(length, bytes(1))):08x}"
    except FileNotFoundError:
        return None


def place_of(at: Mapping[str, Any], *names: str) -> Place:
    """A place as JSON has it: these numbers, and a head if it has one. ValueError, KeyError."""
    head = {"head": str(at["head"])} if "head" in at else {}
    return {name: whole(at[name]) for name in names} | head


def with_head(place: Place, head: str | None) -> Place:
    """A place with the head of its file, if that is known."""
    return place if head is None else {**place, "head": head}


def is_same(place: Place, head: str | None) -> bool:
    """Whether a file with this head is still the one that was read, as far as can be known."""
    return head is None or place.get("head", head) == head


def check_places(
    found: Container[str], start: Position, end: Position, order: Callable[[Place], Any]
) -> None:
    """Whether both positions are of what is read, each in order. Raises PipelineUsageError."""
    for name in {**start, **end}:
        if name not in found:
            raise PipelineUsageError(f"offsets name {name}, to which no path leads")
        if name in start and name in end and order(start[name]) > order(end[name]):
            raise PipelineUsageError(f"endingOffsets are before startingOffsets in {name}")


def whole(value: object) -> int:
    """A number that JSON has as a whole one, from 0 on. Raises ValueError."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no offset")
    return value


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a file was read: `offset` is behind the last entry; `whole`: there is no more.

    `doubt` is where something is wrong that may be so only while it is written.
    """

    offset: int
    rows: int
    whole: bool
    doubt: int | None = None


_LOGGER = logging.getLogger("beanstalkd_py.pipeline")


def look_again(
    run: Callable[[Container[int]], Reached], wait: Callable[[float], object]
) -> Reached:
    """How far a scan gets that is given the faults which have been there for a while."""
    believed: set[int] = set()
    reached, tries = run(believed), 0
    while reached.doubt is not None:
        wait(RETRY_S)
        again = run(believed)
        tries = tries + 1 if again.doubt == reached.doubt else 0
        if tries == RETRIES:
            believed.add(reached.doubt)
            again, tries = run(believed), 0
        reached = again
    return reached


class HasPath(Protocol):
    """A file of a binlog or of a store."""

    @property
    def path(self) -> str:
        """Where it is, or was."""


class Losses:
    """What was removed before it was read: an error, or a warning if that is allowed."""

    def __init__(self, fail: bool) -> None:
        self._fail = fail

    def tell(self, what: str, why: str = REMOVED) -> None:
        """Raises DataLossError."""
        if self._fail:
            raise DataLossError(
                f"{what}: {why}; failOnDataLoss=false, of an export --allow-loss, goes on with"
                " what is there"
            )
        _LOGGER.warning("%s: %s", what, why)

    def without_gone(
        self, position: Mapping[str, Any], found: Container[str], has_files: Callable[[str], bool]
    ) -> dict[str, Any]:
        """A position without the folders that are there no more. Raises DataLossError.

        A folder to which no path leads this time may be read another time.
        """
        kept = {}
        for folder, place in position.items():
            if folder in found or has_files(folder):
                kept[folder] = place
            else:
                self.tell(f"{folder} is gone", ANEW)
        return kept

    def of_file(self, file: HasPath) -> tuple[()]:
        """Tells of a whole file, which has no rows. Raises DataLossError."""
        self.tell(f"{file.path} is gone")
        return ()
