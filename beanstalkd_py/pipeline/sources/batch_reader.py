"""What both sources are to Spark once they know what is wanted: partitions, and batches of Arrow.

A plan (binlog_plan.py, store_plan.py) says which files a task has, and reads them. Filters are not
taken from Spark (`pushFilters`): up to 4.3 it keeps those of one query for the next of the same
DataFrame, which then lacks rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from beanstalkd_py.pipeline.sources.offsets import Plan
from beanstalkd_py.pipeline.sources.spark_types import table_of


class Files(InputPartition):
    """The files of one task."""

    def __init__(self, files: Sequence[Any]) -> None:
        self.files = tuple(files)


class PlanReader(DataSourceReader):
    """A batch."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        """One for each task."""
        return [Files(files) for files in self._plan.tasks()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of the files. Without any, Spark asks all the same, for a partition of its own."""
        files = partition.files if isinstance(partition, Files) else ()
        return self._plan.read(files)


def reader_of(plan: Plan, schema: StructType) -> DataSourceReader:
    """For a batch of the columns of a schema. Raises PipelineUsageError."""
    return PlanReader(plan.with_table(table_of(plan.table, schema)))
