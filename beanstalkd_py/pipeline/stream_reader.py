"""Both sources as streams: files that are written to, followed by Spark 4.2 or newer.

Offsets are positions of binlog_following.py and store_following.py. What lies between two of them
never changes, so a batch that is done again after a crash has the same rows: with a checkpoint
and a sink that knows its batches, each row comes exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

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

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.batch_reader import Files
from beanstalkd_py.pipeline.following import Budget
from beanstalkd_py.pipeline.options import Options

Place = dict[str, Any]
"""A position, as JSON has it."""


class Followed(Protocol):
    """What is written, and how far."""

    def position_of(self, text: str) -> Place:
        """A position as an option has it. Raises PipelineUsageError."""

    def latest(self) -> Place:
        """Behind everything there is now."""

    def after(self, start: Place, budget: Budget, until: Place | None) -> Place:
        """Behind `start`, as far as files and budget allow. Raises DataLossError."""

    def between(self, start: Place, end: Place) -> Sequence[Sequence[Any]]:
        """The files of each task. Raises DataLossError."""

    def read(self, files: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        """Rows of a task's files. Raises DataLossError, MalformedError."""


class FollowingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. Spark makes one for the query, and copies of it read."""

    def __init__(self, following: Followed, options: Options) -> None:
        """Raises PipelineUsageError."""
        self._following = following
        self._limit = limit_of(options)
        self._starting = options.text("startingOffsets") or "earliest"
        if self._starting not in ("earliest", "latest"):
            following.position_of(self._starting)
        self._first: Place | None = None
        self._until: Place | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins; the same whenever it is asked."""
        if self._first is None:
            if self._starting == "earliest":
                self._first = {}
            elif self._starting == "latest":
                self._first = self._following.latest()
            else:
                self._first = self._following.position_of(self._starting)
        return self._first

    def getDefaultReadLimit(self) -> ReadLimit:
        """As the options have it."""
        return self._limit

    def prepareForTriggerAvailableNow(self) -> None:
        """What is written from now on is for another run."""
        self._until = self._following.latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Behind `start`, as far as files and the limit allow. Raises DataLossError."""
        return self._following.after(start, budget_of(limit), self._until)

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


def limit_of(options: Options) -> ReadLimit:
    """What one batch may have at most. Raises PipelineUsageError for two limits at once."""
    limits: list[ReadLimit] = []
    if (files := options.number("maxFilesPerTrigger")) is not None:
        limits.append(ReadMaxFiles(files))
    if (rows := options.number("maxOffsetsPerTrigger")) is not None:
        limits.append(ReadMaxRows(rows))
    if options.text("maxBytesPerTrigger") is not None:
        limits.append(ReadMaxBytes(options.size("maxBytesPerTrigger", 0)))
    if len(limits) > 1:
        raise PipelineUsageError(
            "give one of maxFilesPerTrigger, maxOffsetsPerTrigger and maxBytesPerTrigger"
        )
    return limits[0] if limits else ReadAllAvailable()


def budget_of(limit: ReadLimit) -> Budget:
    """The same for who looks at files."""
    match limit:
        case ReadMaxFiles():
            return Budget(files=limit.max_files)
        case ReadMaxRows():
            return Budget(rows=limit.max_rows)
        case ReadMaxBytes():
            return Budget(size=limit.max_bytes)
    return Budget()
