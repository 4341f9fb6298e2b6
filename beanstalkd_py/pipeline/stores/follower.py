"""Following the commit logs of history stores: a place is an offset of the log.

The head is that of the file with the byte before the place: another store may be at the same path.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.history._store import lib as store_lib
from beanstalkd_py.history.files import layout
from beanstalkd_py.pipeline._columns import ffi, lib
from beanstalkd_py.pipeline.sources.columns import ALL, Table
from beanstalkd_py.pipeline.sources.file_buffer import in_c
from beanstalkd_py.pipeline.sources.follower import (
    HEAD_BYTES,
    Budget,
    Follower,
    Place,
    Reached,
    Scan,
    head_of,
)
from beanstalkd_py.pipeline.stores.files import StoreFile
from beanstalkd_py.pipeline.stores.messages import CHECKS
from beanstalkd_py.pipeline.stores.plan import StorePlan, mapped
from beanstalkd_py.pipeline.stores.tables import MESSAGES

GROWING_CHECKS = CHECKS | store_lib.HS_CHECK_TEXT
"""Only the body has a checksum: the rest of a half-written message may still be zeros."""


class StoreFollower(Follower[StoreFile]):
    PLAN = StorePlan
    NUMBERS = ("offset",)
    EXAMPLE = '{"STORE": OFFSET}'

    def __init__(self, plan: StorePlan, *args: Any, **kwargs: Any) -> None:
        if plan.view != "messages":
            raise PipelineUsageError(f"the view {plan.view} is no stream; use the view messages")
        super().__init__(plan, *args, **kwargs)

    @staticmethod
    def _folder(file: StoreFile) -> str:
        return file.path.rsplit("/", 2)[0]

    @staticmethod
    def _has_files(folder: str) -> bool:
        log = Path(folder) / layout.COMMIT_LOG
        return log.is_dir() and any(log.iterdir())

    @staticmethod
    def _head(place: Place, files: Sequence[StoreFile]) -> str | None:
        before = place["offset"] - 1
        for file in files:
            if file.start <= before < file.stop:
                return head_of(file.path, min(before + 1 - file.start, HEAD_BYTES))
        return None

    def _advance(
        self, files: Sequence[StoreFile], start: Place | None, budget: Budget, stop: Place | None
    ) -> Place:
        at, limit = self._resume(files, start), ALL if stop is None else stop["offset"]
        for file in files:
            if file.stop <= at or at >= limit:
                continue
            if file.start > at:
                self._report_loss(f"{file.path} is there, and offset {at} was next")
                at = file.start
            reached = self._reach(file, at, budget, limit)
            budget = budget.less(reached.rows, reached.offset - at)
            is_done = reached.complete and not file.last and limit >= file.stop
            at = file.stop if is_done else reached.offset
            if not reached.complete or budget.is_spent:
                break
        if start is not None and at == start["offset"] and self._is_same(start, files):
            return start
        return self._with_head({"offset": at}, files)

    def _resume(self, files: Sequence[StoreFile], start: Place | None) -> int:
        """Return the offset to continue at: that of `start`, or the oldest one after a loss."""
        first, end = files[0].start, files[-1].stop
        if start is None:
            return first
        at = start["offset"]
        if not first <= at <= end:
            self._report_loss(f"{files[0].path} begins with {first}, and offset {at} was next")
        elif not self._is_same(start, files):
            self._report_recreated(f"{files[0].path} is of another store, which was begun anew")
        else:
            return at
        return first

    def _reach(self, file: StoreFile, at: int, budget: Budget, limit: int) -> Reached:
        fits = budget.rows is None and (budget.size is None or file.stop - at <= budget.size)
        if not file.last and file.stop <= limit and fits:
            return Reached(file.stop, 0, complete=True)
        return self._confirmed(StoreScan(at, file.last, budget, limit, file))

    def _between(
        self, folder: str, files: Sequence[StoreFile], start: Place | None, end: Place
    ) -> Iterator[StoreFile]:
        stop = end["offset"]
        at = min((file.start for file in files), default=stop) if start is None else start["offset"]
        for file in files:
            if file.stop <= at or file.start >= stop:
                continue
            if file.start > at:
                self._report_loss(f"offset {at} of {folder} is gone")
            lower, upper = max(at - file.start, 0), min(stop, file.stop) - file.start
            yield replace(file, begin=lower, end=upper, exact=True)
            at = file.stop
        if at < stop:
            self._report_loss(f"offset {at} of {folder} is gone")

    def _divide(self, parts: Sequence[StoreFile], least: int) -> list[list[StoreFile]]:
        return [[file] for file in parts]


@dataclass(frozen=True, slots=True)
class StoreScan(Scan):
    TABLE: ClassVar = Table(
        MESSAGES, tuple(c for c in MESSAGES if c.name in ("physicalOffset", "size"))
    )

    file: StoreFile

    def run(self, confirmed: Container[int]) -> Reached:
        try:
            data = mapped(self.file)
        except FileNotFoundError:
            return Reached(self.begin, 0, complete=False)
        with in_c(data) as (memory, length):
            log = ffi.new("bc_log *")
            log.data, log.length, log.base = memory, length, self.file.start
            log.to, log.checks = self.limit, GROWING_CHECKS if self.growing else CHECKS
            log.at = self.begin - self.file.start
            return self._run(
                confirmed,
                log.base,
                length,
                lambda batch: lib.bc_log_read(log, batch),
                lambda: log.fault,
                lambda: lib.bc_log_skip(log),
            )
