"""Files as a DataFrame, without the Data Source API, which copies each row more often.

Tasks open local files by their paths, and binlogs in object stores through Arrow. Other files come
through Spark's reader of whole files, which is limited to 2 GiB for a file.
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
from beanstalkd_py.pipeline.sources.connect import is_connect, parallelism
from beanstalkd_py.pipeline.sources.follower import Follower
from beanstalkd_py.pipeline.sources.paths import absolute, is_bare, local
from beanstalkd_py.pipeline.sources.plan import Plan
from beanstalkd_py.pipeline.sources.spark_types import struct_of
from beanstalkd_py.pipeline.sources.task_python import use_this_python

WHOLE_FILES = "binaryFile"


@dataclass(frozen=True)
class LocalTask:
    reader: BatchRead | Follower[Any]
    tasks: tuple[tuple[Any, ...], ...]
    known: tuple[Any, ...] = ()
    """Files of the whole read."""

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                yield from self.reader.read(self.tasks[number], self.known)


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
    """Return absolute paths, with Spark's default file system unless they name one.

    Raises PipelineUsageError for a relative path on another file system.
    """
    paths = [path] if isinstance(path, str) else list(path)
    default = _default_file_system(spark)
    is_here = local(default) is not None
    if is_here and not is_connect(spark):
        return [absolute(each) for each in paths]
    for each in paths:
        if is_bare(each) and not each.startswith("/"):
            raise PipelineUsageError(f"path {each} is relative; give an absolute path on {default}")
    start = "" if is_here else default.rstrip("/")
    return [start + each if is_bare(each) else each for each in paths]


def _default_file_system(spark: SparkSession) -> str:
    if is_connect(spark):
        return spark.conf.get("spark.hadoop.fs.defaultFS", None) or "file:///"
    context: Any = spark.sparkContext
    return context._jsc.hadoopConfiguration().get("fs.defaultFS") or "file:///"


def listed(spark: SparkSession, path: str, name_glob: str) -> Iterator[str]:
    """Yield the files at or below a glob, on any file system. Raises PipelineUsageError."""
    from pyspark.errors import AnalysisException

    reader = spark.read.format(WHOLE_FILES).option("recursiveFileLookup", "true")
    try:
        rows = reader.option("pathGlobFilter", name_glob).load(path).select("path").collect()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise PipelineUsageError(f"path {path} does not exist") from error
    return (row["path"] for row in rows)


def read_files(
    spark: SparkSession,
    follower: type[Follower[Any]],
    paths: Sequence[str],
    columns: Sequence[str] | None,
    options: Mapping[str, str],
) -> DataFrame:
    """Read files at absolute paths with the options of a batch. Raises PipelineUsageError."""
    read = BatchRead.of(follower, {**options, "paths": json.dumps(list(paths))}, columns)
    if read.plan.is_opened_by_tasks() or read.bounds is not None:
        tasks = tuple(map(tuple, read.tasks(parallelism(spark))))
        return of_tasks(spark, LocalTask(read, tasks, tuple(read.known(tasks))), read.table)
    return _of_contents(spark, read.plan)


def of_tasks(spark: SparkSession, task: LocalTask, table: Table) -> DataFrame:
    """Run a Spark task for each of the tasks."""
    use_this_python()
    count = len(task.tasks)
    numbers = spark.range(0, count, 1, max(count, 1))
    return numbers.mapInArrow(task, struct_of(table))


def _of_contents(spark: SparkSession, plan: Plan[Any]) -> DataFrame:
    use_this_python()
    paths, name_glob = plan.content_globs()
    reader = spark.read.format(WHOLE_FILES).option("recursiveFileLookup", "true")
    if name_glob is not None:
        reader = reader.option("pathGlobFilter", name_glob)
    contents = reader.load(paths).select("path", "content")
    if plan.min_partitions is not None:
        contents = contents.repartition(plan.min_partitions)
    return contents.mapInArrow(ContentTask(plan), struct_of(plan.table))
