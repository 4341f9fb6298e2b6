"""The Spark data sources `beanstalkd_binlog` and `rocketmq_store`.

Spark requests all columns of a Python data source. A query names fewer by the option `columns`, or
by a schema. Sources do not implement `pushFilters`: up to Spark 4.3 it applies the filters of one
query to the next query of the same DataFrame, which then lacks rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.binlogs.follower import BinlogFollower
from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.sources import offsets
from beanstalkd_py.pipeline.sources.follower import Follower
from beanstalkd_py.pipeline.sources.options import STREAM_OPTIONS, Options
from beanstalkd_py.pipeline.sources.plan import Plan
from beanstalkd_py.pipeline.sources.spark_types import FilesPartition, struct_of, table_of
from beanstalkd_py.pipeline.stores.follower import StoreFollower
from beanstalkd_py.pipeline.stores.plan import StorePlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FilesReader(DataSourceReader):
    def __init__(self, plan: offsets.AnyPlan) -> None:
        self._plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        return [FilesPartition(files) for files in self._plan.tasks()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Without any files Spark reads a partition of its own.
        return self._plan.read(partition.files if isinstance(partition, FilesPartition) else ())


class FileSource(DataSource):
    """A data source of files that a plan reads and a follower follows."""

    NAME: ClassVar[str]
    PLAN: ClassVar[type[Plan[Any]]]
    FOLLOWER: ClassVar[type[Follower[Any]]]

    @classmethod
    def name(cls) -> str:
        return cls.NAME

    def schema(self) -> StructType:
        plan, _ = self._plan((*offsets.OPTIONS, *STREAM_OPTIONS))
        return struct_of(plan.table)

    def reader(self, schema: StructType) -> DataSourceReader:
        plan, options = self._plan(offsets.OPTIONS)
        bounded = offsets.within(plan, options, self.FOLLOWER)
        return FilesReader(bounded.with_table(table_of(bounded.table, schema)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        plan, options = self._plan(STREAM_OPTIONS)
        plan = plan.with_table(table_of(plan.table, schema))
        follower = self.FOLLOWER(plan, options.flag("failOnDataLoss", True))
        try:
            from beanstalkd_py.pipeline.sources.stream_reader import StreamReader
        except ImportError as error:
            raise PipelineUsageError(
                f"streams need Spark 4.2 or newer, and this is {pyspark.__version__}"
            ) from error
        return StreamReader(follower, options)

    def _plan(self, more: Sequence[str]) -> tuple[Plan[Any], Options]:
        given = dict(cast(Any, self.options))
        known = (*self.PLAN.OPTIONS, *more)
        return self.PLAN.of(given, known=known), Options(given, known)


class BinlogSource(FileSource):
    """`spark.read.format("beanstalkd_binlog").load(path)`."""

    NAME = "beanstalkd_binlog"
    PLAN = BinlogPlan
    FOLLOWER = BinlogFollower


class StoreSource(FileSource):
    """`spark.read.format("rocketmq_store").load(path)`."""

    NAME = "rocketmq_store"
    PLAN = StorePlan
    FOLLOWER = StoreFollower


def register(spark: SparkSession) -> None:
    """Register the sources and the sink `beanstalkd` in a session; idempotent."""
    from beanstalkd_py.pipeline.sink.writer import TubeSink

    for source in (BinlogSource, StoreSource, TubeSink):
        spark.dataSource.register(source)
