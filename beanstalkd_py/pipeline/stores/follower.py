"""Following history stores as they are written: positions in the log, and what lies between two.

A position is an offset of the log for each store; messages before it have been taken. It has the
head of the file before the offset as well: a store may be another one at the same path. The log is
only appended to, so what lies between two positions is the same whenever it is read. In the last
file reading ends before what is not whole, because it may be being written just now. Knows nothing
of Spark.
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
from beanstalkd_py.history._store import lib as store_lib
from beanstalkd_py.history.files import layout
from beanstalkd_py.pipeline._columns import ffi, lib
from beanstalkd_py.pipeline.sources.columns import (
    FAULT,
    MORE,
    ROWS_AT_ONCE,
    Batch,
    Constants,
    Table,
)
from beanstalkd_py.pipeline.sources.file_buffer import in_c
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
from beanstalkd_py.pipeline.stores import files as store_files
from beanstalkd_py.pipeline.stores.files import ALL, StoreFile
from beanstalkd_py.pipeline.stores.messages import CHECKS
from beanstalkd_py.pipeline.stores.plan import StorePlan, mapped
from beanstalkd_py.pipeline.stores.tables import MESSAGES

UNWRITTEN = store_lib.HS_CHECK_TEXT
"""Only the body has a checksum: of a message that is being written the rest may be zeros still."""

_PLACES = Table(
    MESSAGES, tuple(column for column in MESSAGES if column.name in ("physicalOffset", "size"))
)


class StoreFollowing:
    """The stores behind a plan's paths."""

    def __init__(
        self, plan: StorePlan, fail_on_loss: bool, wait: Callable[[float], object] = time.sleep
    ) -> None:
        """Raises PipelineUsageError for another view than messages."""
        if plan.view != "messages":
            raise PipelineUsageError(f"the view {plan.view} is no stream; messages is one")
        self._plan = plan
        self._losses = Losses(fail_on_loss)
        self._wait = wait

    # --- positions -----------------------------------------------------------------------------

    @staticmethod
    def position_of(option: str, text: str) -> Position:
        """A position as an option has it. Raises PipelineUsageError."""
        try:
            given = json.loads(text).items()
            return {true_path(local(store) or store): _place_of(at) for store, at in given}
        except (ValueError, TypeError, KeyError, AttributeError):
            raise PipelineUsageError(
                f'{option} {text!r} is neither earliest nor latest nor {{"STORE": OFFSET}}'
            ) from None

    def check(self, start: Position, end: Position) -> None:
        """Whether both are of stores that are read, in order. Raises PipelineUsageError."""
        check_places(self._stores(), start, end, itemgetter("offset"))

    def latest(self) -> Position:
        """Behind everything there is now."""
        return self.after({}, UNLIMITED)

    def after(self, start: Position, budget: Budget, until: Position | None = None) -> Position:
        """A position behind `start`, as far as files and budget allow, not behind `until`.

        A store that a position does not name has not been read; one that has no log any more is in
        no position. The budget is divided evenly among stores. Raises DataLossError,
        PipelineUsageError, OSError.
        """
        stores = self._stores()
        end = self._losses.without_gone(start, stores, _has_files)
        for store, files in stores.items():
            if until is None or store in until:
                share = budget.share(len(stores))
                limit = ALL if until is None else until[store]["offset"]
                place = start.get(store)
                at = self._after(files, place, share, limit)
                if place is None or at != place["offset"] or not _is_same(place, files):
                    place = {"offset": at}
                    end[store] = with_head(place, _head(place, files))
        return {store: end[store] for store in sorted(end)}

    def _stores(self) -> dict[str, list[StoreFile]]:
        found: dict[str, list[StoreFile]] = {}
        for file in store_files.find("messages", self._plan.paths, self._plan.hosts):
            found.setdefault(file.path.rsplit("/", 2)[0], []).append(file)
        # However a path to it is written, it is the same store.
        return {true_path(store): files for store, files in found.items()}

    def _after(
        self, files: Sequence[StoreFile], start: Place | None, budget: Budget, limit: int
    ) -> int:
        at = self._go_on(files, start)
        for file in files:
            behind = file.start + file.size
            if behind <= at or at >= limit:
                continue
            if file.start > at:
                self._losses.tell(f"{file.path} is there, and offset {at} was next")
                at = file.start
            reached = self._reach(file, at, budget, limit)
            budget = budget.less(reached.rows, reached.offset - at)
            at = behind if reached.whole and not file.last and limit >= behind else reached.offset
            if not reached.whole or budget.is_spent:
                break
        return at

    def _go_on(self, files: Sequence[StoreFile], start: Place | None) -> int:
        first, end = files[0].start, files[-1].start + files[-1].size
        if start is None:
            return first
        at = int(start["offset"])
        if not first <= at <= end:
            self._losses.tell(f"{files[0].path} begins with {first}, and offset {at} was next")
        elif not _is_same(start, files):
            self._losses.tell(f"{files[0].path} is of another store, which was begun anew", ANEW)
        else:
            return at
        return first

    def _reach(self, file: StoreFile, at: int, budget: Budget, limit: int) -> Reached:
        behind = file.start + file.size
        fits = budget.rows is None and (budget.size is None or behind - at <= budget.size)
        if not file.last and behind <= limit and fits:
            return Reached(behind, 0, whole=True)
        return look_again(Scan(file, at, budget, limit).run, self._wait)

    # --- what lies between ---------------------------------------------------------------------

    def between(self, start: Position, end: Position, _: int = 1) -> list[list[StoreFile]]:
        """The files of each task, each with what is wanted of it: a file for a task.

        Raises DataLossError, PipelineUsageError, OSError.
        """
        stores = self._stores()
        wanted: list[StoreFile] = []
        for store, place in sorted(end.items()):
            files, stop = stores.get(store, []), place["offset"]
            begin = start.get(store)
            if begin == place:
                continue
            if not _is_same(place, files):
                self._losses.tell(f"{store} is another store, which was begun anew", ANEW)
                continue
            if begin is None or begin["offset"] > stop or not _is_same(begin, files):
                at = min((file.start for file in files), default=stop)
            else:
                at = begin["offset"]
            for file in files:
                behind = file.start + file.size
                if behind <= at or file.start >= stop:
                    continue
                if file.start > at:
                    self._losses.tell(f"offset {at} of {store} is gone")
                lower, upper = max(at - file.start, 0), min(stop, behind) - file.start
                wanted.append(replace(file, begin=lower, end=upper, exact=True))
                at = behind
            if at < stop:
                self._losses.tell(f"offset {at} of {store} is gone")
        return [[file] for file in wanted]

    def read(self, files: Sequence[StoreFile]) -> Iterator[pa.RecordBatch]:
        """Rows of what lies between. Raises DataLossError, MalformedError."""
        reading = self._plan.reading()
        return reading.of_files(files, lambda file: mapped(file.path), self._losses.of_file)


def _place_of(at: Any) -> Place:
    """A place as JSON has it, or its offset alone. Raises ValueError, KeyError."""
    return place_of(at if isinstance(at, dict) else {"offset": at}, "offset")


def _has_files(store: str) -> bool:
    log = Path(store) / layout.COMMIT_LOG
    return log.is_dir() and any(log.iterdir())


def _is_same(place: Place, files: Sequence[StoreFile]) -> bool:
    return is_same(place, _head(place, files))


def _head(place: Place, files: Sequence[StoreFile]) -> str | None:
    """Of the file that has the byte before it."""
    before = place["offset"] - 1
    for file in files:
        if file.start <= before < file.start + file.size:
            return head_of(file.path, min(before + 1 - file.start, HEAD_BYTES))
    return None


@dataclass(frozen=True, slots=True)
class Scan:
    """Looks how far messages of a file go, from an offset of the log to `limit`."""

    file: StoreFile
    begin: int
    budget: Budget
    limit: int

    def run(self, believed: Container[int]) -> Reached:
        """`believed` are the offsets of faults that have been there for a while."""
        try:
            data = mapped(self.file.path)
        except FileNotFoundError:
            return Reached(self.begin, 0, whole=False)
        with in_c(data) as (memory, length):
            log = ffi.new("bc_log *")
            log.data, log.length, log.base = memory, length, self.file.start
            log.to, log.checks = self.limit, CHECKS | (UNWRITTEN if self.file.last else 0)
            log.at = self.begin - self.file.start
            return self._run(log, length, believed)

    def _run(self, log: Any, length: int, believed: Container[int]) -> Reached:
        offset, rows = self.begin, 0
        while True:
            left = ROWS_AT_ONCE if self.budget.rows is None else self.budget.rows - rows
            batch = Batch(_PLACES, max(1, min(ROWS_AT_ONCE, left)), 1)
            found = lib.bc_log_read(log, batch.cdata)
            if batch.rows:
                rows += batch.rows
                last = batch.arrow(Constants({})).slice(batch.rows - 1)
                offset = last.column("physicalOffset")[0].as_py() + last.column("size")[0].as_py()
            if found == FAULT:
                at, behind = self.file.start + log.fault.at, log.fault.next
                if self.file.last and behind >= length:
                    return Reached(offset, rows, whole=False)  # the rest is being written
                if self.file.last and at not in believed:
                    return Reached(offset, rows, whole=False, doubt=at)
                lib.bc_log_skip(log)
                offset = max(offset, self.file.start + behind)
            elif found != MORE:
                return Reached(offset, rows, whole=True)
            elif self.budget.less(rows, offset - self.begin).is_spent:
                return Reached(offset, rows, whole=False)
