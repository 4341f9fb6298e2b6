"""`beanstalkd`: tubes of a server to Spark. Rows become jobs; taking jobs out is another matter.

Spark tells a source too late, or not at all, that what it gave has been kept, and asks for the same
rows again after a crash, when the jobs have gone to others. So there is `take_jobs` for that.
"""

from __future__ import annotations

from typing import NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sink.writer import BatchSink, StreamSink, plan_of


class TubesSource(DataSource):
    """`df.write.format("beanstalkd").mode("append").option("addr", "HOST:PORT").save()`."""

    @classmethod
    def name(cls) -> str:
        """By which Spark knows it."""
        return "beanstalkd"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For a batch. Raises PipelineUsageError."""
        return BatchSink(plan_of(self.options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For a batch of a stream. Raises PipelineUsageError."""
        return StreamSink(plan_of(self.options, schema, overwrite))

    def schema(self) -> StructType:
        """Raises PipelineUsageError: Spark asks for it when it is to read."""
        _refuse()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises PipelineUsageError."""
        _refuse()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Raises PipelineUsageError."""
        _refuse()


def _refuse() -> NoReturn:
    raise PipelineUsageError(
        "format beanstalkd only writes: Spark does not say when jobs may be deleted;"
        " use beanstalkd_py.pipeline.take_jobs(), which deletes them when you commit"
    )
