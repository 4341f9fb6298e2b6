"""A source of Spark by its Python Data Source API, for whatever a plan can read and follow.

Spark asks such a source for all its columns, so what is not wanted has to be said: by the option
`columns`, or by a schema that has fewer. Must not know what is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from beanstalkd_py.pipeline.sources import offsets
from beanstalkd_py.pipeline.sources.batch_reader import reader_of
from beanstalkd_py.pipeline.sources.options import STREAM_OPTIONS, Options
from beanstalkd_py.pipeline.sources.spark_types import struct_of, table_of
from beanstalkd_py.pipeline.sources.stream_support import stream_reader_of


class PlannedSource(DataSource):
    """`NAME` is by which Spark knows it, `OPTIONS` what a batch takes.

    `PLAN` has the class method `of`, and `FOLLOWING` follows what such a plan reads.
    """

    NAME: ClassVar[str]
    OPTIONS: ClassVar[tuple[str, ...]]
    PLAN: ClassVar[Any]
    FOLLOWING: ClassVar[Any]

    @classmethod
    def name(cls) -> str:
        """By which Spark knows it."""
        return cls.NAME

    def schema(self) -> StructType:
        """The columns that the options ask for."""
        return struct_of(self._plan((*self.OPTIONS, *offsets.OPTIONS, *STREAM_OPTIONS)).table)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For a batch of the columns of a schema."""
        known = (*self.OPTIONS, *offsets.OPTIONS)
        plan = offsets.within(self._plan(known), self._checked(known), self.FOLLOWING)
        return reader_of(plan, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For a stream of the columns of a schema."""
        known = (*self.OPTIONS, *STREAM_OPTIONS)
        plan = self._plan(known)
        plan = plan.with_table(table_of(plan.table, schema))
        options = self._checked(known)
        following = self.FOLLOWING(plan, options.flag("failOnDataLoss", True))
        return stream_reader_of(following, options)

    def _plan(self, known: Sequence[str]) -> Any:
        return self.PLAN.of(self._given(), known=known)

    def _checked(self, known: Sequence[str]) -> Options:
        return Options(self._given(), known)

    def _given(self) -> dict[str, str]:
        return dict(cast(Any, self.options))
