"""The Spark sink `beanstalkd`: rows of batches and streams become jobs, at least once.

The format cannot be read: Spark does not report reliably that rows were written, and requests them
again after a crash, when the jobs are gone. `take_jobs` serves that purpose.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, cast

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sink import rows as sink_rows
from beanstalkd_py.pipeline.sink import server as sink_server
from beanstalkd_py.pipeline.sink.put import TaskPutter
from beanstalkd_py.pipeline.sink.rows import BODY, COLUMNS, NUMBERS, PutDefaults
from beanstalkd_py.pipeline.sink.server import TubeServer
from beanstalkd_py.pipeline.sources.options import Options
from beanstalkd_py.plural import counted

OPTIONS = (*sink_server.OPTIONS, *sink_rows.OPTIONS, "maxRetries")
STREAM_OPTIONS = ("checkpointLocation", "queryName")
"""Spark's own options, which it passes with those of the sink."""
DEFAULT_RETRIES = 3
MOST_RETRIES = 1000
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class SinkPlan:
    server: TubeServer
    defaults: PutDefaults
    retries: int

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkPlan:
        options = Options(given, (*OPTIONS, *STREAM_OPTIONS))
        if options.text("path") is not None:
            raise PipelineUsageError("jobs have no path; leave it out of save() or start()")
        if overwrite:
            raise PipelineUsageError("jobs cannot be overwritten; use the mode append")
        check_columns(schema)
        return cls(
            TubeServer.of(options),
            PutDefaults.of(options),
            options.whole("maxRetries", DEFAULT_RETRIES, MOST_RETRIES),
        )


def check_columns(schema: StructType) -> None:
    """Raise PipelineUsageError for unknown columns and wrong types."""
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise PipelineUsageError(f"no column {field.name!r}; there are {', '.join(COLUMNS)}")
        wanted, shown = _types(field.name)
        if not isinstance(field.dataType, wanted):
            raise PipelineUsageError(
                f"column {field.name} is {field.dataType.simpleString()}, not {shown}; cast it"
            )
    names = [field.name for field in schema.fields]
    if BODY not in names:
        raise PipelineUsageError("no column body; add one of type binary or string")
    for name in names:
        if names.count(name) > 1:
            raise PipelineUsageError(f"column {name} is there twice; name it once")


def _types(name: str) -> tuple[tuple[type[DataType], ...], str]:
    if name in NUMBERS:
        return _WHOLE, "a whole number"
    if name == BODY:
        return (BinaryType, StringType), "binary or string"
    return (StringType,), "string"


@dataclass
class Put(WriterCommitMessage):
    """The rows that a finished task has put; `size` is bytes of bodies."""

    rows: int
    size: int


class _Writer:
    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Put the rows of a task. Raises the errors of TaskPutter."""
        putter = TaskPutter(self._plan.server, self._plan.defaults, self._plan.retries)
        putter.run(iter(iterator))
        return Put(putter.rows, putter.size)

    # Spark passes the number of the batch for streams only.
    def commit(
        self, messages: list[WriterCommitMessage | None], batchId: int | None = None
    ) -> None:
        rows, size = _sums(messages)
        _LOG.info("put %s, %s of bodies", counted(rows, "row"), counted(size, "byte"))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:
        rows, _ = _sums(messages)
        _LOG.warning("the write failed; %d rows of finished tasks were put and stay", rows)


def _sums(messages: Sequence[WriterCommitMessage | None]) -> tuple[int, int]:
    puts = [message for message in messages if isinstance(message, Put)]
    return sum(put.rows for put in puts), sum(put.size for put in puts)


class BatchSink(_Writer, DataSourceArrowWriter):
    """`df.write.format("beanstalkd").mode("append").save()`."""


class StreamSink(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream.format("beanstalkd").start()`."""


class TubeSink(DataSource):
    """`df.write.format("beanstalkd").mode("append").option("addr", "HOST:PORT").save()`."""

    @classmethod
    def name(cls) -> str:
        return "beanstalkd"

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        return BatchSink(self._plan(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        return StreamSink(self._plan(schema, overwrite))

    def _plan(self, schema: StructType, overwrite: bool) -> SinkPlan:
        given = dict(cast("Mapping[str, str]", self.options))
        return SinkPlan.of(given, schema, overwrite)

    def schema(self) -> StructType:
        _reject_reading()

    def reader(self, schema: StructType) -> DataSourceReader:
        _reject_reading()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        _reject_reading()


def _reject_reading() -> NoReturn:
    raise PipelineUsageError(
        "format beanstalkd only writes: Spark does not say when jobs may be deleted;"
        " use beanstalkd_py.pipeline.take_jobs(), which deletes them when you commit"
    )
