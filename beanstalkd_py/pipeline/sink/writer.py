"""The Spark sink `beanstalkd`: rows of batches and streams become jobs, at least once.

The format cannot be read: Spark does not report reliably that rows were written, and requests them
again after a crash, when the jobs are gone. `take_jobs` serves that purpose.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NoReturn, cast

import pyarrow as pa
from pyspark import TaskContext
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
from beanstalkd_py.pipeline.sink.attempt_tallies import AttemptTally
from beanstalkd_py.pipeline.sink.counter import Counter, TaskPut, Work
from beanstalkd_py.pipeline.sink.put import TaskPutter
from beanstalkd_py.pipeline.sink.rows import BODY, COLUMNS, NUMBERS, PutDefaults
from beanstalkd_py.pipeline.sink.server import TubeServer
from beanstalkd_py.pipeline.sources.options import Options
from beanstalkd_py.plural import counted

OPTIONS = (*sink_server.OPTIONS, *sink_rows.OPTIONS, "counter", "maxRetries")
STREAM_OPTIONS = ("checkpointLocation", "queryName")
"""Spark's own options, which it passes with those of the sink."""
DEFAULT_RETRIES = 3
MOST_RETRIES = 1000
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class SinkPlan:
    server: TubeServer
    defaults: PutDefaults
    retries: int
    counter: Counter | None

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkPlan:
        options = Options(given, (*OPTIONS, *STREAM_OPTIONS))
        if options.text("path") is not None:
            raise PipelineUsageError("jobs have no path; leave it out of save() or start()")
        if overwrite:
            raise PipelineUsageError("jobs cannot be overwritten; use the mode append")
        check_columns(schema)
        counter = options.text("counter")
        plan = cls(
            TubeServer.of(options),
            PutDefaults.of(options),
            options.whole("maxRetries", DEFAULT_RETRIES, MOST_RETRIES),
            Counter(Path(counter)) if counter is not None else None,
        )
        if plan.counter is not None:
            plan.counter.begin()
        return plan


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
    work: Work
    task: TaskPut


class _Writer:
    _IS_STREAM: ClassVar[bool]

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan
        self._name = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Put the rows of a task. Raises the errors of TaskPutter, and OutputError."""
        work, task = self._work()
        attempt = None
        if self._plan.counter is not None:
            attempt = AttemptTally.begin(self._plan.counter.folder, work.name, task)
        putter = TaskPutter(
            self._plan.server,
            self._plan.defaults,
            self._plan.retries,
            attempt.write if attempt is not None else lambda _tally: None,
        )
        try:
            putter.run(iter(iterator))
        finally:
            if attempt is not None:
                attempt.close()
        tally = putter.tally
        name = attempt.name if attempt is not None else None
        return Put(work, TaskPut(tally.put, tally.size, tally.unknown, name))

    def _work(self) -> tuple[Work, str]:
        context = TaskContext.get()
        if context is None:
            return Work(self._name), "0"
        task = f"{context.partitionId()}.{context.attemptNumber()}"
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if self._IS_STREAM and query and batch:
            return Work(query, int(batch)), task
        return Work(self._name), task

    # Spark passes the number of the batch for streams only.
    def commit(
        self, messages: list[WriterCommitMessage | None], batchId: int | None = None
    ) -> None:
        puts = [message for message in messages if isinstance(message, Put)]
        if not puts:
            return
        tasks = [put.task for put in puts]
        if self._plan.counter is not None:
            _LOG.info("put: %s", self._plan.counter.commit(puts[0].work, tasks))
        else:
            rows, size = (sum(task.rows for task in tasks), sum(task.size for task in tasks))
            _LOG.info("put %s, %s of bodies", counted(rows, "row"), counted(size, "byte"))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:
        puts = [message for message in messages if isinstance(message, Put)]
        rows = sum(put.task.rows for put in puts)
        _LOG.warning("the write failed; %d rows of finished tasks were put and stay", rows)


class BatchSink(_Writer, DataSourceArrowWriter):
    """`df.write.format("beanstalkd").mode("append").save()`."""

    _IS_STREAM = False


class StreamSink(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream.format("beanstalkd").start()`."""

    _IS_STREAM = True


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
