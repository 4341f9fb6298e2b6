"""Files as a DataFrame, without the Data Source API, which copies each row more often.

Tasks open local files by their paths. Files of other file systems come through Spark's reader of
whole files, which is limited to 2 GiB for a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sources.batch_read import BatchRead
from beanstalkd_py.pipeline.sources.columns import Table
from beanstalkd_py.pipeline.sources.follower import Follower
from beanstalkd_py.pipeline.sources.options import option_text
from beanstalkd_py.pipeline.sources.paths import is_bare, local
from beanstalkd_py.pipeline.sources.plan import Plan
from beanstalkd_py.pipeline.sources.spark_types import struct_of

WHOLE_FILES = "binaryFile"


@dataclass(frozen=True)
class LocalTask:
    reader: BatchRead | Follower[Any]
    tasks: tuple[tuple[Any, ...], ...]

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                yield from self.reader.read(self.tasks[number])


@dataclass(frozen=True)
class ContentTask:
    plan: Plan[Any]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder, row_filter = self.plan.decoding()
        for batch in batches:
            paths, contents = batch.column("path"), batch.column("content")
            for path, content in zip(paths.to_pylist(), contents, strict=True):
                file = self.plan.file_of(path)
                if file is not None:
                    yield from row_filter.apply(decoder.rows(file, content.as_buffer()))


def qualified(spark: SparkSession, path: str | Sequence[str]) -> list[str]:
    """Return the paths, with Spark's default file system unless they name one."""
    paths = [path] if isinstance(path, str) else list(path)
    context: Any = spark.sparkContext
    default = context._jsc.hadoopConfiguration().get("fs.defaultFS") or "file:///"
    if local(default) is not None:
        return paths
    return [default.rstrip("/") + each if is_bare(each) else each for each in paths]


def are_local(paths: Sequence[str]) -> bool:
    """Whether tasks can open the paths. Raises PipelineUsageError if only some are local."""
    are = {local(path) is not None for path in paths}
    if len(are) > 1:
        raise PipelineUsageError("some paths are local and some are not; read them one by one")
    return are == {True}


def read_files(
    spark: SparkSession,
    follower: type[Follower[Any]],
    path: str | Sequence[str],
    columns: Sequence[str] | None,
    options: Mapping[str, object],
) -> DataFrame:
    """Read files with the options of a batch. Raises PipelineUsageError."""
    paths = qualified(spark, path)
    given = {name: option_text(value) for name, value in options.items()}
    given["paths"] = json.dumps(paths)
    read = BatchRead.of(follower, given, columns)
    if are_local(paths):
        tasks = tuple(map(tuple, read.tasks(spark.sparkContext.defaultParallelism)))
        return of_tasks(spark, LocalTask(read, tasks), read.table)
    if read.bounds is not None:
        raise PipelineUsageError(
            "startingOffsets and endingOffsets are for local paths; of other file systems files"
            " are read whole"
        )
    return _of_contents(spark, read.plan)


def of_tasks(spark: SparkSession, task: LocalTask, table: Table) -> DataFrame:
    """Run a Spark task for each task of a plan."""
    count = len(task.tasks)
    numbers = spark.range(0, count, 1, max(count, 1))
    return numbers.mapInArrow(task, struct_of(table))


def _of_contents(spark: SparkSession, plan: Plan[Any]) -> DataFrame:
    paths, name_glob = plan.content_globs()
    reader = spark.read.format(WHOLE_FILES).option("recursiveFileLookup", "true")
    if name_glob is not None:
        reader = reader.option("pathGlobFilter", name_glob)
    found = reader.load(paths).select("path", "content")
    if plan.min_partitions is not None:
        found = found.repartition(plan.min_partitions)
    return found.mapInArrow(ContentTask(plan), struct_of(plan.table))
