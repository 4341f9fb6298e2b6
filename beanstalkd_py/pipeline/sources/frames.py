"""Files as a DataFrame, past the Data Source API: fewer copies of each row.

Files that tasks can open by their path are opened there. Those of other file systems come through
Spark's own reader of whole files, which reads whatever Spark's file systems reach, and has a limit
of 2 GiB for a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sources.offsets import Plan
from beanstalkd_py.pipeline.sources.paths import is_bare, local
from beanstalkd_py.pipeline.sources.spark_types import struct_of

WHOLE_FILES = "binaryFile"

Decode = Callable[[Iterable[tuple[str, Any]]], Iterator[pa.RecordBatch]]
"""Makes rows of paths and bytes."""


@dataclass(frozen=True)
class LocalTask:
    """Reads the files of the tasks whose numbers come in."""

    plan: Plan
    tasks: tuple[tuple[Any, ...], ...]

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of their files."""
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                yield from self.plan.read(self.tasks[number])


@dataclass(frozen=True)
class ContentTask:
    """Reads files that come in with their bytes."""

    decode: Decode

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of all of them."""
        return self.decode(_files(batches))


def _files(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, Any]]:
    for batch in batches:
        paths, contents = batch.column("path"), batch.column("content")
        for path, content in zip(paths.to_pylist(), contents, strict=True):
            yield path, content.as_buffer()


def qualified(spark: SparkSession, path: str | Sequence[str]) -> list[str]:
    """The paths, on Spark's usual file system if they do not say on which they are."""
    paths = [path] if isinstance(path, str) else list(path)
    context: Any = spark.sparkContext
    usual = context._jsc.hadoopConfiguration().get("fs.defaultFS") or "file:///"
    if local(usual) is not None:
        return paths
    return [usual.rstrip("/") + each if is_bare(each) else each for each in paths]


def are_local(paths: Sequence[str]) -> bool:
    """Whether tasks can open them. Raises PipelineUsageError if that is so of some only."""
    are = {local(path) is not None for path in paths}
    if len(are) > 1:
        raise PipelineUsageError("some paths are local and some are not; read them one by one")
    return are == {True}


def refuse_offsets(plan: Plan, bounded: Plan) -> None:
    """For files that come whole. Raises PipelineUsageError."""
    if bounded is not plan:
        raise PipelineUsageError(
            "startingOffsets and endingOffsets are for local paths; of other file systems files"
            " are read whole"
        )


def of_local(spark: SparkSession, plan: Plan) -> DataFrame:
    """A task for each run of files, by their paths."""
    tasks = tuple(tuple(files) for files in plan.tasks(spark.sparkContext.defaultParallelism))
    numbers = spark.range(0, len(tasks), 1, max(len(tasks), 1))
    return numbers.mapInArrow(LocalTask(plan, tasks), struct_of(plan.table))


def of_contents(
    spark: SparkSession,
    plan: Plan,
    paths: Sequence[str],
    name_glob: str | None,
    partitions: int | None,
    decode: Decode,
) -> DataFrame:
    """Whole files below the paths, by Spark's own reader; their names match `name_glob`, if any."""
    reader = spark.read.format(WHOLE_FILES).option("recursiveFileLookup", "true")
    if name_glob is not None:
        reader = reader.option("pathGlobFilter", name_glob)
    found = reader.load(list(paths)).select("path", "content")
    if partitions is not None:
        found = found.repartition(partitions)
    return found.mapInArrow(ContentTask(decode), struct_of(plan.table))
