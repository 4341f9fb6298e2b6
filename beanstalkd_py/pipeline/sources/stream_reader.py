"""Both sources as streams: files that are written to, followed by Spark 4.2 or newer.

Offsets are positions of binlog_following.py and store_following.py. What lies between two of them
never changes, so a batch that is done again after a crash has the same rows: with a checkpoint
and a sink that knows its batches, each row comes exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

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

from beanstalkd_py.pipeline.sources.batch_reader import Files
from beanstalkd_py.pipeline.sources.follower import Budget, Position
from beanstalkd_py.pipeline.sources.offsets import Following, word_of
from beanstalkd_py.pipeline.sources.options import Options


class FollowingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. Spark makes one for the query, and copies of it read."""

    def __init__(self, following: Following, options: Options) -> None:
        """Raises PipelineUsageError."""
        self._following = following
        self._limits = limits_of(options)
        self._starting = word_of(options.text("startingOffsets")) or "earliest"
        self._named: Position = {}
        if self._starting not in ("earliest", "latest"):
            self._named = following.position_of("startingOffsets", self._starting)
        self._first: Position | None = None
        self._until: Position | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins; the same whenever it is asked."""
        if self._first is None:
            self._following.check(self._named, {})
            latest = self._starting == "latest"
            self._first = self._following.latest() if latest else self._named
        return self._first

    def getDefaultReadLimit(self) -> ReadLimit:
        """As the options have it. Spark takes one; with it come the others (`budget_of`)."""
        return self._limits[0] if self._limits else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """What is written from now on is for another run."""
        self._until = self._following.latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Behind `start`, as far as files and the limit allow. Raises DataLossError."""
        budget = budget_of(self._limits if limit in self._limits else [limit])
        return self._following.after(start, budget, self._until)

    def reportLatestOffset(self) -> dict[str, Any]:
        """For those who watch how far behind it is."""
        return self._following.latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Runs of files. Raises DataLossError."""
        return [Files(files) for files in self._following.between(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of the files. Raises DataLossError, MalformedError."""
        return self._following.read(partition.files if isinstance(partition, Files) else ())

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept for what has been taken; servers remove their files themselves."""


def limits_of(options: Options) -> list[ReadLimit]:
    """What one batch may have at most: it ends with the first that is reached."""
    limits: list[ReadLimit] = []
    if (files := options.number("maxFilesPerTrigger")) is not None:
        limits.append(ReadMaxFiles(files))
    if (rows := options.number("maxOffsetsPerTrigger")) is not None:
        limits.append(ReadMaxRows(rows))
    if options.text("maxBytesPerTrigger") is not None:
        limits.append(ReadMaxBytes(options.size("maxBytesPerTrigger", 0)))
    return limits


def budget_of(limits: Iterable[ReadLimit]) -> Budget:
    """The same for who looks at files."""
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
