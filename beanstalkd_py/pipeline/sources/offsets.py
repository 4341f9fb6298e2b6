"""A batch of what lies between two positions: startingOffsets and endingOffsets.

As with Spark's Kafka source, such a batch reads again what a stream has taken, by the offsets that
the stream's progress told, and what was removed meanwhile is a loss. Knows nothing of Spark, nor
what is in files: those that follow them (binlog_following.py, store_following.py) do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import pyarrow as pa

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sources.columns import Table
from beanstalkd_py.pipeline.sources.follower import UNLIMITED, Budget, Position
from beanstalkd_py.pipeline.sources.options import Options

OPTIONS = ("endingOffsets", "failOnDataLoss", "startingOffsets")
"""Besides, of a batch."""


class Plan(Protocol):
    """What is wanted of files (binlog_plan.py, store_plan.py)."""

    @property
    def table(self) -> Table:
        """The columns."""

    def with_table(self, table: Table) -> Self:
        """The same with other columns."""

    def tasks(self, parallelism: int | None = None) -> Sequence[Sequence[Any]]:
        """The files of each task."""

    def read(self, files: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        """Rows of a task's files."""


class Following(Protocol):
    """What is written, and how far."""

    def position_of(self, option: str, text: str) -> Position:
        """A position as an option has it. Raises PipelineUsageError."""

    def check(self, start: Position, end: Position) -> None:
        """Whether both are of what is read, in order. Raises PipelineUsageError."""

    def latest(self) -> Position:
        """Behind everything there is now."""

    def after(self, start: Position, budget: Budget, until: Position | None = None) -> Position:
        """Behind `start`, as far as files and budget allow. Raises DataLossError."""

    def between(self, start: Position, end: Position, least: int = 1) -> Sequence[Sequence[Any]]:
        """The files of each task, at least so many tasks if there are. Raises DataLossError."""

    def read(self, files: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        """Rows of a task's files. Raises DataLossError, MalformedError."""


Follow = Callable[[Any, bool], Following]
"""Follows what a plan reads; the flag says that a loss is an error."""


@dataclass(frozen=True, slots=True)
class OffsetPlan:
    """A plan that reads from one position to another; `end` None: to what there is by then."""

    plan: Plan
    follow: Follow
    fail_on_loss: bool
    start: Position
    end: Position | None

    @property
    def table(self) -> Table:
        """The columns."""
        return self.plan.table

    def with_table(self, table: Table) -> OffsetPlan:
        """The same with other columns."""
        return replace(self, plan=self.plan.with_table(table))

    def tasks(self, parallelism: int | None = None) -> Sequence[Sequence[Any]]:
        """The files of each task. Raises DataLossError, PipelineUsageError, OSError."""
        following = self._following()
        following.check(self.start, self.end or {})
        end = following.after(self.start, UNLIMITED) | (self.end or {})
        return following.between(self.start, end, parallelism or 1)

    def read(self, files: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        """Rows of a task's files. Raises DataLossError, MalformedError."""
        return self._following().read(files)

    def _following(self) -> Following:
        return self.follow(self.plan, self.fail_on_loss)


def word_of(text: str | None) -> str | None:
    """`earliest` and `latest` in any case, as Kafka's source has them; JSON as it is."""
    return text.lower() if text is not None and text.strip().isalpha() else text


def within(plan: Plan, options: Options, follow: Follow) -> Plan:
    """A plan as the options bound it; itself if they do not. Raises PipelineUsageError.

    What a position does not name is read from its beginning, to its end.
    """
    fail_on_loss = options.flag("failOnDataLoss", True)
    starting = word_of(options.text("startingOffsets")) or "earliest"
    ending = word_of(options.text("endingOffsets")) or "latest"
    if (starting, ending) == ("earliest", "latest"):
        return plan
    for option, text, never in (
        ("startingOffsets", starting, "latest"),
        ("endingOffsets", ending, "earliest"),
    ):
        if text == never:
            raise PipelineUsageError(f"{option} {never} leaves nothing for a batch to read")
    following = follow(plan, fail_on_loss)
    return OffsetPlan(
        plan,
        follow,
        fail_on_loss,
        {} if starting == "earliest" else following.position_of("startingOffsets", starting),
        None if ending == "latest" else following.position_of("endingOffsets", ending),
    )
