"""Sources as streams. Spark 4.2 is the first version that this module can be imported with.

Stream offsets are positions of a follower. The rows between two positions never change, so a batch
that is repeated after a crash has the same rows. With a checkpoint and an idempotent sink each row
is delivered exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from beanstalkd_py.pipeline.sources.batch_read import normalized
from beanstalkd_py.pipeline.sources.follower import Budget, Follower, Position
from beanstalkd_py.pipeline.sources.options import Options
from beanstalkd_py.pipeline.sources.spark_types import FilesPartition


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. Spark makes one for the query; tasks read with copies of it."""

    def __init__(self, follower: Follower[Any], options: Options) -> None:
        self._follower = follower
        self._limits = limits_of(options)
        self._starting = normalized(options.text("startingOffsets")) or "earliest"
        self._named: Position = {}
        if self._starting not in ("earliest", "latest"):
            self._named = follower.position_of("startingOffsets", self._starting)
        self._first: Position | None = None
        self._until: Position | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the same first position in every call."""
        if self._first is None:
            self._follower.check(self._named, {})
            latest = self._starting == "latest"
            self._first = self._follower.latest() if latest else self._named
        return cast("dict[str, Any]", self._first)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one limit, by which latestOffset recognizes all of them."""
        return self._limits[0] if self._limits else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """End the query at the data of this moment."""
        self._until = self._follower.latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        budget = budget_of(self._limits if limit in self._limits else [limit])
        return cast("dict[str, Any]", self._follower.after(start, budget, self._until))

    def reportLatestOffset(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self._follower.latest())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [FilesPartition(files) for files in self._follower.between(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._follower.read(partition.files if isinstance(partition, FilesPartition) else ())

    def commit(self, end: dict[str, Any]) -> None:
        """Keep the files: servers remove them."""


def limits_of(options: Options) -> list[ReadLimit]:
    """Return the limits of a batch, which ends at the first that it reaches."""
    limits: list[ReadLimit] = []
    if (files := options.number("maxFilesPerTrigger")) is not None:
        limits.append(ReadMaxFiles(files))
    if (rows := options.number("maxOffsetsPerTrigger")) is not None:
        limits.append(ReadMaxRows(rows))
    if options.text("maxBytesPerTrigger") is not None:
        limits.append(ReadMaxBytes(options.size("maxBytesPerTrigger", 0)))
    return limits


def budget_of(limits: Iterable[ReadLimit]) -> Budget:
    budget = Budget()
    for limit in limits:
        match limit:
            case ReadMaxFiles():
                budget = replace(budget, files=limit.max_files)
            case ReadMaxRows():
                budget = replace(budget, rows=limit.max_rows)
            case ReadMaxBytes():
                budget = replace(budget, size=limit.max_bytes)
    return budget
