"""The sink `beanstalkd` to Spark: rows of batches and streams become jobs, at least once."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
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
from beanstalkd_py.pipeline.sink import rows as tubes_rows
from beanstalkd_py.pipeline.sink import server as tubes_server
from beanstalkd_py.pipeline.sink.attempt_files import Note
from beanstalkd_py.pipeline.sink.counter import Counter, TaskPut, Work
from beanstalkd_py.pipeline.sink.put import Putting, Tally
from beanstalkd_py.pipeline.sink.rows import BODY, COLUMNS, NUMBERS, Terms
from beanstalkd_py.pipeline.sink.server import TubesServer
from beanstalkd_py.pipeline.sources.options import Options
from beanstalkd_py.plural import counted

OPTIONS = (*tubes_server.OPTIONS, *tubes_rows.OPTIONS, "counter", "maxRetries")
STREAM_OPTIONS = ("checkpointLocation", "queryName")
"""Spark's own, which it hands over with ours."""
DEFAULT_RETRIES = 3
MOST_RETRIES = 1000
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class SinkPlan:
    """What rows become, where, and who counts them."""

    server: TubesServer
    terms: Terms
    retries: int
    counter: Counter | None

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkPlan:
        """As it was asked for. Raises PipelineUsageError before anything is put."""
        options = Options(given, (*OPTIONS, *STREAM_OPTIONS))
        if options.text("path") is not None:
            raise PipelineUsageError("jobs have no path; leave it out of save() or start()")
        if overwrite:
            raise PipelineUsageError("jobs cannot be overwritten; use the mode append")
        check_columns(schema)
        counter = options.text("counter")
        plan = cls(
            TubesServer.of(options),
            Terms.of(options),
            options.whole("maxRetries", DEFAULT_RETRIES, MOST_RETRIES),
            Counter(Path(counter)) if counter is not None else None,
        )
        if plan.counter is not None:
            plan.counter.begin()
        return plan


def check_columns(schema: StructType) -> None:
    """Raises PipelineUsageError for columns that no job has, or of other types."""
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise PipelineUsageError(f"no column {field.name!r}; there are {', '.join(COLUMNS)}")
        wanted, said = _types(field.name)
        if not isinstance(field.dataType, wanted):
            raise PipelineUsageError(
                f"column {field.name} is {field.dataType.simpleString()}, not {said}; cast it"
            )
    names = [field.name for field in schema.fields]
    if BODY not in names:
        raise PipelineUsageError("no column body; a job needs one, of binary or string")
    for name in names:
        if names.count(name) > 1:
            raise PipelineUsageError(f"column {name} is there twice")


def _types(name: str) -> tuple[tuple[type[DataType], ...], str]:
    if name in NUMBERS:
        return _WHOLE, "a whole number"
    if name == BODY:
        return (BinaryType, StringType), "binary or string"
    return (StringType,), "string"


@dataclass
class Put(WriterCommitMessage):
    """What a task has put, and of which batch."""

    work: Work
    task: TaskPut


class _Writer:
    """What batches and streams have in common."""

    _IS_STREAM: ClassVar[bool]

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan
        self._name = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Puts the rows of a task. Raises what Putting raises, and OutputError."""
        work, task = self._place()
        note = None
        if self._plan.counter is not None:
            note = Note.begin(self._plan.counter.folder, work.name, task)
        tell = note.tell if note is not None else _tell_nobody
        putting = Putting(self._plan.server, self._plan.terms, self._plan.retries, tell)
        try:
            putting.run(iter(iterator))
        finally:
            if note is not None:
                note.close()
        tally = putting.tally
        name = note.name if note is not None else None
        return Put(work, TaskPut(tally.put, tally.size, tally.unknown, name))

    def _place(self) -> tuple[Work, str]:
        """The batch that this task is of, and the task and its attempt."""
        context = TaskContext.get()
        if context is None:
            return Work(self._name), "0"
        task = f"{context.partitionId()}.{context.attemptNumber()}"
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if self._IS_STREAM and query and batch:
            return Work(query, int(batch)), task
        return Work(self._name), task

    def _committed(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        puts = [message for message in messages if isinstance(message, Put)]
        if not puts:
            return
        tasks = [put.task for put in puts]
        if self._plan.counter is not None:
            _LOG.info("put: %s", self._plan.counter.commit(puts[0].work, tasks))
        else:
            rows, size = (sum(task.rows for task in tasks), sum(task.size for task in tasks))
            _LOG.info("put %s, %s of bodies", counted(rows, "row"), counted(size, "byte"))

    def _aborted(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        puts = [message for message in messages if isinstance(message, Put)]
        rows = sum(put.task.rows for put in puts)
        _LOG.warning("not finished; %d rows of tasks that did finish were put, and stay", rows)


def _tell_nobody(_tally: Tally) -> None:
    pass


class BatchSink(_Writer, DataSourceArrowWriter):
    """`df.write.format("beanstalkd").mode("append").save()`."""

    _IS_STREAM = False

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Counts."""
        self._committed(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Jobs that were put stay."""
        self._aborted(messages)


class StreamSink(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream.format("beanstalkd").start()`."""

    _IS_STREAM = True

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Counts; a batch that is done again is counted once."""
        self._committed(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Jobs that were put stay, and are put again when the batch is."""
        self._aborted(messages)


def plan_of(options: Any, schema: StructType, overwrite: bool) -> SinkPlan:
    """A plan from what Spark hands over. Raises PipelineUsageError."""
    return SinkPlan.of(dict(cast("Mapping[str, str]", options)), schema, overwrite)
