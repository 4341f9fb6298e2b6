"""Following binlog folders: a place is a file number and an offset in that file.

A local file is complete once a later one has entries; files on other file systems always are. The
head is that of the place's file, or of the previous file if nothing of the former was read. It
reveals a folder that was emptied or resharded, and has files with the same numbers again.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from beanstalkd_py.pipeline._columns import lib
from beanstalkd_py.pipeline.binlogs import files as binlog_files
from beanstalkd_py.pipeline.binlogs.entries import BinlogFile, new_c_decoder
from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan, read_file
from beanstalkd_py.pipeline.binlogs.table import COLUMNS
from beanstalkd_py.pipeline.sources.columns import ALL, Table
from beanstalkd_py.pipeline.sources.file_buffer import FileBuffer, in_c
from beanstalkd_py.pipeline.sources.follower import (
    HEAD_BYTES,
    Budget,
    Follower,
    Place,
    Reached,
    Scan,
    head_of,
)
from beanstalkd_py.pipeline.sources.paths import is_bare
from beanstalkd_py.pipeline.sources.remote import list_files


class BinlogFollower(Follower[BinlogFile]):
    PLAN = BinlogPlan
    NUMBERS = ("file", "offset")
    EXAMPLE = '{"FOLDER": {"file": N, "offset": N}}'

    @staticmethod
    def _folder(file: BinlogFile) -> str:
        return file.path.rpartition("/")[0]

    @staticmethod
    def _has_files(folder: str) -> bool:
        if not is_bare(folder):
            return any(
                binlog_files.number_of(url.rpartition("/")[2]) for url, _ in list_files(folder)
            )
        path = Path(folder)
        return path.is_dir() and any(binlog_files.number_of(each.name) for each in path.iterdir())

    @staticmethod
    def _head(place: Place, files: Sequence[BinlogFile]) -> str | None:
        number, length = place["file"], min(place["offset"], HEAD_BYTES)
        if length == 0:
            number, length = number - 1, HEAD_BYTES
        path = next((file.path for file in files if file.number == number), None)
        return None if path is None else head_of(path, length)

    def _advance(
        self, files: Sequence[BinlogFile], start: Place | None, budget: Budget, stop: Place | None
    ) -> Place:
        written = [file for file in files if binlog_files.has_entries(file)]
        number, offset, start = self._resume(written or files, start)
        for file in [each for each in written if each.number >= number]:
            if stop is not None and file.number > stop["file"]:
                break
            if file.number > number:
                if start is not None:
                    self._report_missing(files, number, file)
                number, offset = file.number, 0
            is_stop = stop is not None and file.number == stop["file"]
            limit = stop["offset"] if stop is not None and is_stop else ALL
            complete = file is not written[-1] or not is_bare(file.path)
            reached = self._reach(file, offset, not (complete or is_stop), budget, limit)
            budget = budget.less(reached.rows, reached.offset - offset)
            if is_stop or not complete or not reached.complete:
                offset = reached.offset
                break
            number, offset = file.number + 1, 0
            if budget.is_spent:
                break
        if start is not None and (number, offset) == (start["file"], start["offset"]):
            return start
        return self._with_head({"file": number, "offset": offset}, files)

    def _resume(
        self, files: Sequence[BinlogFile], start: Place | None
    ) -> tuple[int, int, Place | None]:
        """Return file number and offset to continue at, and `start`.

        After a loss these are the oldest file, 0 and None.
        """
        first, last = files[0].number, files[-1].number
        if start is None:
            return first, 0, None
        folder = files[0].path.rpartition("/")[0]
        following = last if is_bare(folder) else last + 1
        if not first <= start["file"] <= following:
            self._report_loss(
                f"{folder} has binlog.{first} to {last}, and binlog.{start['file']} was next"
            )
        elif not self._is_same(start, files) or _ends_before(start, files):
            self._report_recreated(
                f"{folder} was begun anew, binlog.{start['file']} is another file now"
            )
        else:
            return start["file"], start["offset"], start
        return first, 0, None

    def _report_missing(self, files: Sequence[BinlogFile], first: int, file: BinlogFile) -> None:
        """Report a removed file before `file`; servers do not remove files without entries."""
        numbers = {each.number for each in files}
        gone = next((n for n in range(first, file.number) if n not in numbers), None)
        if gone is not None:
            folder = file.path.rpartition("/")[0]
            self._report_loss(f"binlog.{gone} of {folder} is gone, {file.name} is there")

    def _reach(
        self, file: BinlogFile, begin: int, growing: bool, budget: Budget, limit: int
    ) -> Reached:
        fits = budget.rows is None and (budget.size is None or file.size - begin <= budget.size)
        if not growing and limit == ALL and fits:
            return Reached(max(file.size, begin), 0, complete=True)
        return self._confirmed(BinlogScan(begin, growing, budget, limit, file))

    def _between(
        self, folder: str, files: Sequence[BinlogFile], start: Place | None, end: Place
    ) -> Iterator[BinlogFile]:
        by_number = {file.number: file for file in files}
        first = start["file"] if start is not None else min(by_number, default=end["file"])
        for number in range(first, end["file"] + 1):
            lower = start["offset"] if start is not None and number == start["file"] else 0
            upper = end["offset"] if number == end["file"] else ALL
            if upper == 0:
                continue
            if number in by_number:
                yield replace(by_number[number], begin=lower, end=upper)
            elif start is not None:
                self._report_loss(f"binlog.{number} of {folder} is gone")

    def _divide(self, parts: Sequence[BinlogFile], least: int) -> list[list[BinlogFile]]:
        least = self._plan.min_partitions or least
        return binlog_files.pack(parts, least, self._plan.target_bytes)


def _ends_before(place: Place, files: Sequence[BinlogFile]) -> bool:
    return any(file.number == place["file"] and file.size < place["offset"] for file in files)


@dataclass(frozen=True, slots=True)
class BinlogScan(Scan):
    TABLE: ClassVar = Table(COLUMNS, tuple(c for c in COLUMNS if c.name in ("offset", "size")))

    file: BinlogFile

    def run(self, confirmed: Container[int]) -> Reached:
        try:
            data = read_file(FileBuffer(), self.file)
        except FileNotFoundError:
            return Reached(max(self.file.size, self.begin), 0, complete=True)
        entries = new_c_decoder()
        with in_c(data) as (memory, length):
            number, begin, end = self.file.number, self.begin, self.limit
            kind = lib.bc_entries_open(entries, memory, length, number, begin, end)
            if kind != lib.BC_FILE_ENTRIES:
                return Reached(begin if self.growing else max(length, begin), 0, not self.growing)
            return self._run(
                confirmed,
                0,
                length,
                lambda batch: lib.bc_entries_read(entries, batch),
                lambda: lib.bc_entries_fault(entries),
                lambda: lib.bc_entries_skip(entries),
            )
