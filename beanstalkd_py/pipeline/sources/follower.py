"""Following files that are still written: positions, and the rows between two positions.

A position has a place for each folder: the next byte to read, and a hash of the head of its file.
The head reveals that a folder was recreated with the same file names. A position is JSON, so that
checkpoints can store it. Files are only appended to, so the rows between two positions never
change and can be read again after a crash.

The last file of a folder may be half written: reading ends before an incomplete entry, and a fault
counts only once it has been there for a while. Imports nothing of Spark.
"""

from __future__ import annotations

import json
import logging
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypedDict

import pyarrow as pa

from beanstalkd_py.errors import DataLossError, PipelineUsageError
from beanstalkd_py.pipeline.sources.columns import (
    FAULT,
    MORE,
    ROWS_AT_ONCE,
    Batch,
    Constants,
    Table,
)
from beanstalkd_py.pipeline.sources.decoder import File
from beanstalkd_py.pipeline.sources.paths import is_bare, local, true_path
from beanstalkd_py.pipeline.sources.plan import Plan
from beanstalkd_py.pipeline.sources.remote import RemotePath

RETRIES = 3
RETRY_S = 0.02
HEAD_BYTES = 300

_LOGGER = logging.getLogger("beanstalkd_py.pipeline")


class Place(TypedDict, total=False):
    """The next byte of one folder; `file` is for binlogs only."""

    file: int
    offset: int
    head: str


Position = dict[str, Place]
"""A place for each folder of binlogs or store."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on what lies between two positions; None means no limit."""

    files: int | None = None
    rows: int | None = None
    size: int | None = None

    def share(self, of: int) -> Budget:
        def part(value: int | None) -> int | None:
            return None if value is None else max(1, -(-value // of))

        return Budget(part(self.files), part(self.rows), part(self.size))

    def less(self, rows: int, size: int) -> Budget:
        """Return the rest after `rows` and `size` of one file."""
        return Budget(
            None if self.files is None else self.files - 1,
            None if self.rows is None else self.rows - rows,
            None if self.size is None else self.size - size,
        )

    @property
    def is_spent(self) -> bool:
        return any(left is not None and left <= 0 for left in (self.files, self.rows, self.size))


UNLIMITED = Budget()


@dataclass(frozen=True, slots=True)
class Reached:
    """The end of a scan: `offset` is after the last entry; `complete`: no further entry follows.

    `suspect` is the offset of a fault that may be a half-written entry.
    """

    offset: int
    rows: int
    complete: bool
    suspect: int | None = None


@dataclass(frozen=True, slots=True)
class Scan(ABC):
    """Finds how far a file can be read from `begin` to `limit`; `growing` files are still written.

    A format derives from this, opens the file in `run` and calls `_run`.
    """

    begin: int
    growing: bool
    budget: Budget
    limit: int

    TABLE: ClassVar[Table]

    @abstractmethod
    def run(self, confirmed: Container[int]) -> Reached:
        """Scan; `confirmed` are the offsets of faults that are not half-written entries."""

    def _run(
        self,
        confirmed: Container[int],
        base: int,
        length: int,
        read: Callable[[Any], int],
        fault: Callable[[], Any],
        skip: Callable[[], object],
    ) -> Reached:
        """Scan a file of this length by functions of C; `base` is the offset of its first byte.

        `fault` returns the `bc_fault` that `skip` skips.
        """
        offset, rows = self.begin, 0
        start, size = self.TABLE.schema.names
        while True:
            left = ROWS_AT_ONCE if self.budget.rows is None else self.budget.rows - rows
            batch = Batch(self.TABLE, max(1, min(ROWS_AT_ONCE, left)), 1)
            result = read(batch.cdata)
            if result < 0:
                raise MemoryError
            if batch.rows:
                rows += batch.rows
                last = batch.arrow(Constants({})).slice(batch.rows - 1)
                offset = last.column(start)[0].as_py() + last.column(size)[0].as_py()
            if result == FAULT:
                unreadable = fault()
                at, following = base + unreadable.at, base + unreadable.next
                if self.growing and following >= base + length:
                    return Reached(offset, rows, complete=False)  # half written
                if self.growing and at not in confirmed:
                    return Reached(offset, rows, complete=False, suspect=at)
                skip()
                offset = max(offset, following)
            elif result != MORE:
                return Reached(min(max(offset, self.begin), self.limit), rows, complete=True)
            elif self.budget.less(rows, offset - self.begin).is_spent:
                return Reached(offset, rows, complete=False)


class Follower(ABC, Generic[File]):
    """Follows the folders of a plan. A format derives from this."""

    PLAN: ClassVar[type[Plan[Any]]]
    NUMBERS: ClassVar[tuple[str, ...]]
    """Keys of a place, in order of significance."""
    EXAMPLE: ClassVar[str]

    def __init__(
        self, plan: Plan[File], fail_on_loss: bool, wait: Callable[[float], object] = time.sleep
    ) -> None:
        self._plan = plan
        self._fail_on_loss = fail_on_loss
        self._wait = wait

    @property
    def table(self) -> Table:
        return self._plan.table

    @staticmethod
    @abstractmethod
    def _folder(file: File) -> str:
        """Return the folder whose place covers the file."""

    @staticmethod
    @abstractmethod
    def _has_files(folder: str) -> bool:
        """Whether a folder outside the plan's paths still has data."""

    @staticmethod
    @abstractmethod
    def _head(place: Place, files: Sequence[File]) -> str | None:
        """Hash the head of the file before a place; None if that file is gone."""

    @abstractmethod
    def _advance(
        self, files: Sequence[File], start: Place | None, budget: Budget, stop: Place | None
    ) -> Place:
        """Return a place after `start`, as far as budget and `stop` allow. DataLossError."""

    @abstractmethod
    def _between(
        self, folder: str, files: Sequence[File], start: Place | None, end: Place
    ) -> Iterator[File]:
        """Return the parts of files between two places. Raises DataLossError."""

    @abstractmethod
    def _divide(self, parts: Sequence[File], least: int) -> list[list[File]]:
        """Divide parts among at least `least` tasks, if there are so many."""

    @classmethod
    def position_of(cls, option: str, text: str) -> Position:
        """Parse the position in an option. Raises PipelineUsageError."""
        try:
            places = json.loads(text).items()
            return {true_path(local(name) or name): cls._place_of(at) for name, at in places}
        except (ValueError, TypeError, KeyError, AttributeError):
            raise PipelineUsageError(
                f"{option} {text!r} is neither earliest nor latest nor {cls.EXAMPLE}"
            ) from None

    @classmethod
    def _place_of(cls, at: Any) -> Place:
        values = at if isinstance(at, dict) else {"offset": at}
        place: Any = {name: _offset(values[name]) for name in cls.NUMBERS}
        if "head" in values:
            place["head"] = str(values["head"])
        parsed: Place = place
        return parsed

    def _order(self, place: Mapping[str, Any]) -> tuple[int, ...]:
        return tuple(place[name] for name in self.NUMBERS)

    def check(self, start: Position, end: Position) -> None:
        """Check the folders and the order of two positions. Raises PipelineUsageError."""
        folders = self._folders()
        for name in {**start, **end}:
            if name not in folders:
                raise PipelineUsageError(f"offsets name {name}, to which no path leads")
            both = name in start and name in end
            if both and self._order(start[name]) > self._order(end[name]):
                raise PipelineUsageError(f"endingOffsets are before startingOffsets in {name}")

    def latest(self) -> Position:
        return self.after({}, UNLIMITED)

    def after(self, start: Position, budget: Budget, until: Position | None = None) -> Position:
        """Return a position after `start`, as far as the budget allows, at most `until`.

        A folder that `start` lacks has not been read. A folder without files is in no position.
        The budget is divided evenly among folders. Raises DataLossError, PipelineUsageError,
        OSError.
        """
        folders = self._folders()
        end: Position = {}
        for folder, place in start.items():
            # A folder to which no path leads now may be read another time.
            if folder in folders or self._has_files(folder):
                end[folder] = place
            else:
                self._report_recreated(f"{folder} is gone")
        for folder, files in folders.items():
            if until is None or folder in until:
                stop = None if until is None else until[folder]
                share = budget.share(len(folders))
                end[folder] = self._advance(files, start.get(folder), share, stop)
        return {folder: end[folder] for folder in sorted(end)}

    def _folders(self) -> dict[str, list[File]]:
        folders: dict[str, list[File]] = {}
        for file in self._plan.find():
            folders.setdefault(self._folder(file), []).append(file)
        return {true_path(folder): files for folder, files in folders.items()}

    def _with_head(self, place: Place, files: Sequence[File]) -> Place:
        head = self._head(place, files)
        return place if head is None else {**place, "head": head}

    def _is_same(self, place: Place, files: Sequence[File]) -> bool:
        """Whether the file of a place still has the same head, as far as known."""
        head = self._head(place, files)
        return head is None or place.get("head", head) == head

    def _confirmed(self, scan: Scan) -> Reached:
        """Scan until every fault is confirmed by RETRIES looks."""
        confirmed: set[int] = set()
        reached, tries = scan.run(confirmed), 0
        while reached.suspect is not None:
            self._wait(RETRY_S)
            again = scan.run(confirmed)
            tries = tries + 1 if again.suspect == reached.suspect else 0
            if tries == RETRIES:
                confirmed.add(reached.suspect)
                again, tries = scan.run(confirmed), 0
            reached = again
        return reached

    def between(self, start: Position, end: Position, least: int = 1) -> list[list[File]]:
        """Return the files of each task, each with the part between two positions.

        Raises DataLossError, PipelineUsageError, OSError.
        """
        folders = self._folders()
        parts: list[File] = []
        for folder, stop in sorted(end.items()):
            begin, files = start.get(folder), folders.get(folder, [])
            if begin == stop:
                continue
            if not self._is_same(stop, files):
                self._report_recreated(f"{folder} was begun anew, with other files")
                continue
            if begin is not None and (
                self._order(begin) > self._order(stop) or not self._is_same(begin, files)
            ):
                begin = None  # the folder was recreated after `start`
            parts += self._between(folder, files, begin, stop)
        return self._divide(parts, least)

    def read(self, files: Sequence[File], known: Sequence[File] = ()) -> Iterator[pa.RecordBatch]:
        """Return the rows of parts of files. Raises DataLossError and errors of the plan."""
        return self._plan.read(files, known, self._report_file)

    def _report_loss(self, what: str, why: str = "it was removed before it was read") -> None:
        if self._fail_on_loss:
            raise DataLossError(
                f"{what}: {why}; set failOnDataLoss=false, or --allow-loss of an export, to read"
                " the rest"
            )
        _LOGGER.warning("%s: %s", what, why)

    def _report_recreated(self, what: str) -> None:
        self._report_loss(what, "its former data may not have been read to the end")

    def _report_file(self, file: File) -> tuple[()]:
        self._report_loss(f"{file.path} is gone")
        return ()


def head_of(path: str, length: int) -> str | None:
    """Hash the first bytes of a file, None if it is gone. Raises OSError."""
    try:
        if is_bare(path):
            with open(path, "rb") as data:  # noqa: PTH123 - a path is text here
                head = data.read(length)
        else:
            head = RemotePath.of(path).read(length)
    except FileNotFoundError:
        return None
    return f"{zlib.crc32(head.ljust(length, bytes(1))):08x}"


def _offset(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no offset")
    return value
