"""Batches: all files of a plan, or the rows between two positions.

The options startingOffsets and endingOffsets bound a batch. As with Spark's Kafka source, such a
batch reads again what a stream has read, by the offsets of the stream's progress. Data removed
meanwhile is a loss. Imports nothing of Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sources.columns import Table
from beanstalkd_py.pipeline.sources.follower import UNLIMITED, Follower, Position
from beanstalkd_py.pipeline.sources.options import Options
from beanstalkd_py.pipeline.sources.plan import Plan
from beanstalkd_py.pipeline.sources.reach import sample_of

OPTIONS = ("endingOffsets", "failOnDataLoss", "startingOffsets")
"""Options of a batch besides those of its plan."""


@dataclass(frozen=True, slots=True)
class BatchRead:
    """One read. `bounds` are its positions, None for all files; an end of None is the latest."""

    plan: Plan[Any]
    follower: type[Follower[Any]]
    fail_on_loss: bool
    bounds: tuple[Position, Position | None] | None

    @classmethod
    def of(
        cls,
        follower: type[Follower[Any]],
        given: Mapping[str, str],
        columns: Sequence[str] | None = None,
    ) -> BatchRead:
        """Plan a read by its options. Raises PipelineUsageError.

        A folder that a position lacks is read from its beginning, or to its end.
        """
        options = Options(given, (*follower.PLAN.OPTIONS, *OPTIONS))
        plan = follower.PLAN.of_options(options, columns)
        fail_on_loss = options.flag("failOnDataLoss", True)
        starting = normalized(options.text("startingOffsets")) or "earliest"
        ending = normalized(options.text("endingOffsets")) or "latest"
        if (starting, ending) == ("earliest", "latest"):
            return cls(plan, follower, fail_on_loss, None)
        for option, text, never in (
            ("startingOffsets", starting, "latest"),
            ("endingOffsets", ending, "earliest"),
        ):
            if text == never:
                raise PipelineUsageError(f"{option} {never} leaves nothing for a batch to read")
        start: Position = {}
        if starting != "earliest":
            start = follower.position_of("startingOffsets", starting)
        end = None if ending == "latest" else follower.position_of("endingOffsets", ending)
        return cls(plan, follower, fail_on_loss, (start, end))

    @property
    def table(self) -> Table:
        return self.plan.table

    def with_table(self, table: Table) -> BatchRead:
        return replace(self, plan=self.plan.with_table(table))

    def tasks(self, parallelism: int | None = None) -> Sequence[Sequence[Any]]:
        """Return the files of each task. Raises PipelineUsageError, DataLossError, OSError."""
        if self.bounds is None:
            return self.plan.tasks(parallelism)
        (start, end), follower = self.bounds, self._follow()
        follower.check(start, end or {})
        end = follower.after(start, UNLIMITED) | (end or {})
        return follower.between(start, end, parallelism or 1)

    def known(self, tasks: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """Return the files of the whole read for each task; a bounded read reports each loss."""
        return sample_of(tasks) if self.bounds is None else ()

    def read(self, files: Sequence[Any], known: Sequence[Any] = ()) -> Iterator[pa.RecordBatch]:
        return (self.plan if self.bounds is None else self._follow()).read(files, known)

    def _follow(self) -> Follower[Any]:
        return self.follower(self.plan, self.fail_on_loss)


def normalized(text: str | None) -> str | None:
    """Lower `earliest` and `latest`, as Spark's Kafka source does; keep JSON."""
    return text.lower() if text is not None and text.strip().isalpha() else text
