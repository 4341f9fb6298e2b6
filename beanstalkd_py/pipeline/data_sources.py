"""The Spark data sources `beanstalkd_binlog` and `rocketmq_store`.

Spark requests all columns of a Python data source. A query names fewer by the option `columns`, or
by a schema. Sources do not implement `pushFilters`: up to Spark 4.3 it applies the filters of one
query to the next query of the same DataFrame, which then lacks rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

import pyarrow as pa
import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.binlogs.follower import BinlogFollower
from beanstalkd_py.pipeline.sources import batch_read
from beanstalkd_py.pipeline.sources.batch_read import BatchRead
from beanstalkd_py.pipeline.sources.follower import Follower
from beanstalkd_py.pipeline.sources.options import STREAM_OPTIONS, Options, is_of_table
from beanstalkd_py.pipeline.sources.plan import Plan
from beanstalkd_py.pipeline.sources.spark_types import (
    FilesPartition,
    options_in,
    struct_of,
    table_of,
    with_options,
)
from beanstalkd_py.pipeline.sources.task_python import use_this_python
from beanstalkd_py.pipeline.stores.follower import StoreFollower

ALREADY_EXISTS = "DATA_SOURCE_ALREADY_EXISTS"


class FilesReader(DataSourceReader):
    def __init__(self, read: BatchRead) -> None:
        self._read = read

    def partitions(self) -> Sequence[InputPartition]:
        tasks = self._read.tasks()
        known = self._read.known(tasks)
        return [FilesPartition(files, known) for files in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Without any files Spark reads a partition of its own.
        if not isinstance(partition, FilesPartition):
            return iter(())
        return self._read.read(partition.files, partition.known)


class FileSource(DataSource):
    """A data source of files that a follower and its plan read."""

    NAME: ClassVar[str]
    FOLLOWER: ClassVar[type[Follower[Any]]]

    @classmethod
    def name(cls) -> str:
        return cls.NAME

    def schema(self) -> StructType:
        given = self._lower_options()
        plan, options = self._plan(given, (*batch_read.OPTIONS, *STREAM_OPTIONS))
        schema = struct_of(plan.table)
        return with_options(schema, options.given) if is_of_table(given) else schema

    def reader(self, schema: StructType) -> DataSourceReader:
        read = BatchRead.of(self.FOLLOWER, options_in(schema) | self._lower_options())
        return FilesReader(read.with_table(table_of(read.table, schema)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        plan, options = self._plan(options_in(schema) | self._lower_options(), STREAM_OPTIONS)
        plan = plan.with_table(table_of(plan.table, schema))
        follower = self.FOLLOWER(plan, options.flag("failOnDataLoss", True))
        try:
            from beanstalkd_py.pipeline.sources.stream_reader import StreamReader
        except ImportError as error:
            raise PipelineUsageError(
                f"streams need Spark 4.2 or newer, and this is {pyspark.__version__}"
            ) from error
        return StreamReader(follower, options)

    def _lower_options(self) -> dict[str, str]:
        return {name.lower(): value for name, value in cast(Any, self.options).items()}

    def _plan(self, given: Mapping[str, str], more: Sequence[str]) -> tuple[Plan[Any], Options]:
        plan_type = self.FOLLOWER.PLAN
        options = Options(given, (*plan_type.OPTIONS, *more))
        return plan_type.of_options(options), options


class BinlogSource(FileSource):
    """`spark.read.format("beanstalkd_binlog").load(path)`."""

    NAME = "beanstalkd_binlog"
    FOLLOWER = BinlogFollower


class StoreSource(FileSource):
    """`spark.read.format("rocketmq_store").load(path)`."""

    NAME = "rocketmq_store"
    FOLLOWER = StoreFollower


def register(spark: SparkSession) -> None:
    """Register the sources and the sink `beanstalkd` in a session; idempotent."""
    from beanstalkd_py.pipeline.sink.writer import TubeSink

    use_this_python()
    for source in (BinlogSource, StoreSource, TubeSink):
        register_source(spark, source)


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Register one source in a session unless Spark has found it by the name of its module.

    Spark searches for such modules when it first looks for a source, and then rejects the name.
    """
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != ALREADY_EXISTS:
            raise
