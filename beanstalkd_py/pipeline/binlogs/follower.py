"""Following binlogs as servers write them: positions, and what lies between two of them.

A position says for each folder which file is next and from which offset on; all before it has been
taken. It has the head of that file as well, or of the one before: a folder may begin anew, with the
same numbers, when it is emptied or divided among other workers. It is JSON, so that a checkpoint
can keep it. What lies between two positions never changes, for files are only appended to, so it
can be read again after a crash, and is the same.

A file is complete when a later one has entries. In the last one reading ends before what is not
whole, because the server may be writing it just now. Knows nothing of Spark.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline._columns import ffi, lib
from beanstalkd_py.pipeline.binlogs import files as binlog_files
from beanstalkd_py.pipeline.binlogs.entries import ALL, BinlogFile
from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan, read_file
from beanstalkd_py.pipeline.binlogs.table import COLUMNS
from beanstalkd_py.pipeline.sources.columns import (
    FAULT,
    MORE,
    ROWS_AT_ONCE,
    Batch,
    Constants,
    Table,
)
from beanstalkd_py.pipeline.sources.file_buffer import Memory, in_c
from beanstalkd_py.pipeline.sources.follower import (
    ANEW,
    HEAD_BYTES,
    UNLIMITED,
    Budget,
    Losses,
    Place,
    Position,
    Reached,
    check_places,
    head_of,
    is_same,
    look_again,
    place_of,
    with_head,
)
from beanstalkd_py.pipeline.sources.paths import local, true_path

_PLACES = Table(COLUMNS, tuple(column for column in COLUMNS if column.name in ("offset", "size")))


class BinlogFollowing:
    """The folders behind a plan's paths."""

    def __init__(
        self, plan: BinlogPlan, fail_on_loss: bool, wait: Callable[[float], object] = time.sleep
    ) -> None:
        self._plan = plan
        self._losses = Losses(fail_on_loss)
        self._wait = wait

    # --- positions -----------------------------------------------------------------------------

    @staticmethod
    def position_of(option: str, text: str) -> Position:
        """A position as an option has it. Raises PipelineUsageError."""
        try:
            places = {
                folder: place_of(at, "file", "offset") for folder, at in json.loads(text).items()
            }
        except (ValueError, TypeError, KeyError, AttributeError):
            raise PipelineUsageError(
                f"{option} {text!r} is neither earliest nor latest nor"
                ' {"FOLDER": {"file": N, "offset": N}}'
            ) from None
        return {true_path(local(folder) or folder): at for folder, at in places.items()}

    def check(self, start: Position, end: Position) -> None:
        """Whether both are of folders that are read, in order. Raises PipelineUsageError."""
        check_places(self._folders(), start, end, itemgetter("file", "offset"))

    def latest(self) -> Position:
        """Behind everything there is now."""
        return self.after({}, UNLIMITED)

    def after(self, start: Position, budget: Budget, until: Position | None = None) -> Position:
        """A position behind `start`, as far as files and budget allow, not behind `until`.

        A folder that a position does not name has not been read; one that has no files any more is
        in no position. The budget is divided evenly among folders. Raises DataLossError,
        PipelineUsageError, OSError.
        """
        folders = self._folders()
        end = self._losses.without_gone(start, folders, _has_files)
        for folder, files in folders.items():
            if until is None or folder in until:
                share = budget.share(len(folders))
                stop = None if until is None else until[folder]
                end[folder] = self._after(files, start.get(folder), share, stop)
        return {folder: end[folder] for folder in sorted(end)}

    def _folders(self) -> dict[str, list[BinlogFile]]:
        found: dict[str, list[BinlogFile]] = {}
        for file in binlog_files.find(self._plan.lookup):
            found.setdefault(file.path.rpartition("/")[0], []).append(file)
        # However a path to it is written, it is the same folder.
        return {true_path(folder): files for folder, files in found.items()}

    def _after(
        self,
        files: Sequence[BinlogFile],
        start: Place | None,
        budget: Budget,
        stop: Place | None,
    ) -> Place:
        written = [file for file in files if binlog_files.has_entries(file)]
        number, offset, start = self._go_on(written or files, start)
        for file in [each for each in written if each.number >= number]:
            if stop is not None and file.number > stop["file"]:
                break
            if file.number > number:
                if start is not None:  # else it was so before anybody followed
                    self._lose_between(files, number, file)
                number, offset = file.number, 0
            is_stop = stop is not None and file.number == stop["file"]
            limit = stop["offset"] if stop is not None and is_stop else ALL
            complete = file is not written[-1]
            reached = self._reach(file, offset, complete or is_stop, budget, limit)
            budget = budget.less(reached.rows, reached.offset - offset)
            if is_stop or not complete or not reached.whole:
                offset = reached.offset
                break
            number, offset = file.number + 1, 0
            if budget.is_spent:
                break
        if start is not None and (number, offset) == (start["file"], start["offset"]):
            return start
        place = {"file": number, "offset": offset}
        return with_head(place, _head(place, files))

    def _go_on(
        self, files: Sequence[BinlogFile], start: Place | None
    ) -> tuple[int, int, Place | None]:
        """Where to go on: at the oldest file if what was next is not there any more."""
        first, last = files[0].number, files[-1].number
        if start is None:
            return first, 0, None
        folder = files[0].path.rpartition("/")[0]
        if not first <= start["file"] <= last:
            self._losses.tell(
                f"{folder} has binlog.{first} to {last}, and binlog.{start['file']} was next"
            )
        elif not is_same(start, _head(start, files)) or _ends_before(start, files):
            what = f"{folder} was begun anew, binlog.{start['file']} is another file now"
            self._losses.tell(what, ANEW)
        else:
            return start["file"], start["offset"], start
        return first, 0, None

    def _lose_between(self, files: Sequence[BinlogFile], first: int, file: BinlogFile) -> None:
        """Files from `first` on and before a file; those that nobody wrote to are not missed."""
        there = {each.number for each in files}
        gone = next((n for n in range(first, file.number) if n not in there), None)
        if gone is not None:
            folder = file.path.rpartition("/")[0]
            self._losses.tell(f"binlog.{gone} of {folder} is gone, {file.name} is there")

    def _reach(
        self, file: BinlogFile, begin: int, complete: bool, budget: Budget, limit: int
    ) -> Reached:
        fits = budget.rows is None and (budget.size is None or file.size - begin <= budget.size)
        if complete and limit == ALL and fits:
            return Reached(max(file.size, begin), 0, whole=True)
        scan = Scan(file, begin, complete, budget, limit)
        return look_again(scan.run, self._wait)

    # --- what lies between ---------------------------------------------------------------------

    def between(self, start: Position, end: Position, least: int = 1) -> list[list[BinlogFile]]:
        """The files of each task, each with the entries that are wanted of it.

        At least `least` tasks if there are so many files. Raises DataLossError,
        PipelineUsageError, OSError.
        """
        folders = self._folders()
        wanted: list[BinlogFile] = []
        for folder, stop in sorted(end.items()):
            begin = start.get(folder)
            if begin == stop:
                continue
            files = {file.number: file for file in folders.get(folder, [])}
            there = list(files.values())
            if not is_same(stop, _head(stop, there)):
                self._losses.tell(f"{folder} was begun anew, its files are others now", ANEW)
                continue
            if begin is not None and not (
                begin["file"] <= stop["file"] and is_same(begin, _head(begin, there))
            ):
                begin = None  # files were numbered anew
            first = begin["file"] if begin is not None else min(files, default=stop["file"])
            for number in range(first, stop["file"] + 1):
                lower = begin["offset"] if begin is not None and number == begin["file"] else 0
                upper = stop["offset"] if number == stop["file"] else ALL
                if upper == 0:
                    continue
                if number in files:
                    wanted.append(replace(files[number], begin=lower, end=upper))
                elif begin is not None:
                    self._losses.tell(f"binlog.{number} of {folder} is gone")
        least = self._plan.min_partitions or least
        return binlog_files.pack(wanted, least, self._plan.target_bytes)

    def read(self, files: Sequence[BinlogFile]) -> Iterator[pa.RecordBatch]:
        """Rows of what lies between. Raises DataLossError, MalformedError."""
        memory = Memory()
        reading = self._plan.reading()
        return reading.of_files(files, lambda file: read_file(memory, file), self._losses.of_file)


def _has_files(folder: str) -> bool:
    path = Path(folder)
    return path.is_dir() and any(binlog_files.number_of(each.name) for each in path.iterdir())


def _ends_before(place: Place, files: Sequence[BinlogFile]) -> bool:
    return any(file.number == place["file"] and file.size < place["offset"] for file in files)


def _head(place: Place, files: Sequence[BinlogFile]) -> str | None:
    """Of its file, or of the one before if nothing of its file was taken."""
    number, offset = place["file"], place["offset"]
    number, length = (number, min(offset, HEAD_BYTES)) if offset > 0 else (number - 1, HEAD_BYTES)
    path = next((file.path for file in files if file.number == number), None)
    return None if path is None else head_of(path, length)


@dataclass(frozen=True, slots=True)
class Scan:
    """Looks how far entries of a file go that begin at `begin`..`limit`."""

    file: BinlogFile
    begin: int
    complete: bool
    budget: Budget
    limit: int

    def run(self, believed: Container[int]) -> Reached:
        """`believed` are the offsets of faults that have been there for a while."""
        try:
            data = read_file(Memory(), self.file)
        except FileNotFoundError:
            return Reached(max(self.file.size, self.begin), 0, whole=True)
        entries = ffi.gc(lib.bc_entries_new(), lib.bc_entries_free)
        if entries == ffi.NULL:
            raise MemoryError
        with in_c(data) as (memory, length):
            kind = lib.bc_entries_open(entries, memory, length, self.file.number)
            if kind != lib.BC_FILE_ENTRIES:
                end = length if self.complete else 0
                return Reached(max(end, self.begin), 0, whole=self.complete)
            lib.bc_entries_range(entries, self.begin, self.limit)
            return self._run(entries, length, believed)

    def _run(self, entries: Any, length: int, believed: Container[int]) -> Reached:
        offset, rows = self.begin, 0
        fault = ffi.new("bc_fault *")
        while True:
            left = ROWS_AT_ONCE if self.budget.rows is None else self.budget.rows - rows
            batch = Batch(_PLACES, max(1, min(ROWS_AT_ONCE, left)), 1)
            found = lib.bc_entries_read(entries, batch.cdata)
            if found < 0:
                raise MemoryError
            if batch.rows:
                rows += batch.rows
                last = batch.arrow(Constants({})).slice(batch.rows - 1)
                offset = last.column("offset")[0].as_py() + last.column("size")[0].as_py()
            if found == FAULT:
                lib.bc_entries_fault(entries, fault)
                at, behind = int(fault.at), int(fault.next)
                if not self.complete and behind >= length:
                    return Reached(offset, rows, whole=False)  # the rest is being written
                if not self.complete and at not in believed:
                    return Reached(offset, rows, whole=False, doubt=at)
                lib.bc_entries_skip(entries)
                offset = max(offset, behind)
            elif found != MORE:
                return Reached(min(max(offset, self.begin), self.limit), rows, whole=True)
            elif self.budget.less(rows, offset - self.begin).is_spent:
                return Reached(offset, rows, whole=False)
