"""`read_binlog` and `read_store`: the fastest ways to read binlogs and history stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from beanstalkd_py.pipeline.data_sources import (
    BinlogSource,
    FileSource,
    StoreSource,
    register_source,
)
from beanstalkd_py.pipeline.sources.connect import is_connect
from beanstalkd_py.pipeline.sources.frames import qualified, read_files
from beanstalkd_py.pipeline.sources.options import option_text
from beanstalkd_py.pipeline.sources.paths import are_local


def read_binlog(
    spark: SparkSession,
    path: str | Sequence[str],
    columns: Sequence[str] | None = None,
    mode: str = "PERMISSIVE",
    **options: object,
) -> DataFrame:
    """Read the entries of binlogs, a row each.

    `path` is a folder of one or several workers, a file, a glob, or a list of these, on any file
    system of Spark. Only `columns` are read; the default is all but the body. Options are those of
    the source `beanstalkd_binlog`. Raises PipelineUsageError.
    """
    return _read(spark, BinlogSource, path, columns, {"mode": mode, **options})


def read_store(
    spark: SparkSession,
    path: str | Sequence[str],
    view: str = "messages",
    columns: Sequence[str] | None = None,
    mode: str = "PERMISSIVE",
    **options: object,
) -> DataFrame:
    """Read the messages, consume queues or index of history stores.

    `path` is the folder of a store, a glob, or a list of these, on any file system of Spark. Only
    `columns` are read. Options are those of the source `rocketmq_store`. Raises
    PipelineUsageError.
    """
    return _read(spark, StoreSource, path, columns, {"mode": mode, "view": view, **options})


def _read(
    spark: SparkSession,
    source: type[FileSource],
    path: str | Sequence[str],
    columns: Sequence[str] | None,
    options: Mapping[str, object],
) -> DataFrame:
    paths = qualified(spark, path)
    texts = {name: option_text(value) for name, value in options.items()}
    if not (is_connect(spark) and are_local(paths)):
        return read_files(spark, source.FOLLOWER, paths, columns, texts)
    # The server finds its local files, so it plans the read.
    register_source(spark, source)
    if columns is not None:
        texts["columns"] = ",".join(columns)
    return spark.read.format(source.NAME).options(**texts).load(paths)


def mark_copies(entries: DataFrame) -> DataFrame:
    """Correct `is_copy` of entries over all files of a host and shard, at the cost of a shuffle.

    The source alone cannot recognize the copy of a job without events, which equals its put.
    Needs the columns host, shard, file_number, offset, kind, id and is_copy. If the file with the
    put was removed, the first copy of such a job stands for the put.
    """
    jobs = Window.partitionBy("host", "shard", "id", "kind")
    first = f.row_number().over(jobs.orderBy("file_number", "offset")) == 1
    is_copy = (f.col("kind") == "full") & (f.col("is_copy") | ~first)
    return entries.withColumn("is_copy", is_copy)
