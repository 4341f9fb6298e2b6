"""Batches between two positions: the options startingOffsets and endingOffsets.

As with Spark's Kafka source, such a batch reads again what a stream has read, by the offsets of the
stream's progress. Data removed meanwhile is a loss. Imports nothing of Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import pyarrow as pa

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sources.columns import Table
from beanstalkd_py.pipeline.sources.follower import UNLIMITED, Follower, Position
from beanstalkd_py.pipeline.sources.options import Options
from beanstalkd_py.pipeline.sources.plan import Plan

OPTIONS = ("endingOffsets", "failOnDataLoss", "startingOffsets")
"""Options of a batch besides those of its plan."""


class AnyPlan(Protocol):
    """A Plan, or an OffsetPlan around one."""

    @property
    def table(self) -> Table: ...

    def with_table(self, table: Table) -> Self: ...

    def tasks(self, parallelism: int | None = None) -> Sequence[Sequence[Any]]: ...

    def read(self, files: Sequence[Any]) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True)
class OffsetPlan:
    """Reads a plan's files from one position to another; `end` None: to the latest position."""

    plan: Plan[Any]
    follower: type[Follower[Any]]
    fail_on_loss: bool
    start: Position
    end: Position | None

    @property
    def table(self) -> Table:
        return self.plan.table

    def with_table(self, table: Table) -> OffsetPlan:
        return replace(self, plan=self.plan.with_table(table))

    def tasks(self, parallelism: int | None = None) -> Sequence[Sequence[Any]]:
        follower = self._follow()
        follower.check(self.start, self.end or {})
        end = follower.after(self.start, UNLIMITED) | (self.end or {})
        return follower.between(self.start, end, parallelism or 1)

    def read(self, files: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        return self._follow().read(files)

    def _follow(self) -> Follower[Any]:
        return self.follower(self.plan, self.fail_on_loss)


def normalized(text: str | None) -> str | None:
    """Lower `earliest` and `latest`, as Spark's Kafka source does; keep JSON."""
    return text.lower() if text is not None and text.strip().isalpha() else text


def within(plan: Plan[Any], options: Options, follower: type[Follower[Any]]) -> AnyPlan:
    """Bound a plan by the options; return it unchanged if they do not. PipelineUsageError.

    A folder that a position lacks is read from its beginning, or to its end.
    """
    fail_on_loss = options.flag("failOnDataLoss", True)
    starting = normalized(options.text("startingOffsets")) or "earliest"
    ending = normalized(options.text("endingOffsets")) or "latest"
    if (starting, ending) == ("earliest", "latest"):
        return plan
    for option, text, never in (
        ("startingOffsets", starting, "latest"),
        ("endingOffsets", ending, "earliest"),
    ):
        if text == never:
            raise PipelineUsageError(f"{option} {never} leaves nothing for a batch to read")
    return OffsetPlan(
        plan,
        follower,
        fail_on_loss,
        {} if starting == "earliest" else follower.position_of("startingOffsets", starting),
        None if ending == "latest" else follower.position_of("endingOffsets", ending),
    )
