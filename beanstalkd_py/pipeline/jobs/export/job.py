"""Binlogs and history stores as Parquet, partitioned by date and tube, a bit more with each run.

    export(spark, ["/srv/*/binlog", "/srv/*/history"], "/srv/tables")

makes the data sets `/srv/tables/entries` and `/srv/tables/messages`. A run takes what is new since
the last one, beside running servers too. Each row is in the data set once, whatever is killed when:
how far inputs have been taken, and the rows up to there, are one change of export_log.py.

Positions are those of the streams (binlog_following.py, store_following.py), but this is no
streaming query: its checkpoint would be a second log that has to agree with the first, and a run
costs several times as much where little is new. Spark's own sink for files is not used: the rows of
a batch that was killed are in its folder, and only Spark itself knows not to read them. Here
whatever reads a folder of Parquet files sees what is complete. What is not yet is in `_export`
beside it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from beanstalkd_py.errors import BeanstalkdError, DataLossError, MalformedError, PipelineUsageError
from beanstalkd_py.history.files import layout
from beanstalkd_py.pipeline.binlogs.table import COLUMNS as ENTRY_COLUMNS
from beanstalkd_py.pipeline.jobs.export.compaction import Compaction
from beanstalkd_py.pipeline.jobs.export.files import Files
from beanstalkd_py.pipeline.jobs.export.lock import locked
from beanstalkd_py.pipeline.jobs.export.log import ExportLog, Record
from beanstalkd_py.pipeline.jobs.export.tables import (
    ENTRIES,
    MESSAGES_TABLE,
    PARTITIONS,
    TABLES,
    Followed,
    Table,
)
from beanstalkd_py.pipeline.jobs.export.tubes import OpenJobs
from beanstalkd_py.pipeline.jobs.export.writing import settle, write
from beanstalkd_py.pipeline.sources.follower import Budget
from beanstalkd_py.pipeline.sources.frames import are_local
from beanstalkd_py.pipeline.sources.paths import expand, local, true_path

COLUMNS = tuple(column.name for column in ENTRY_COLUMNS if column.name in ENTRIES.columns)
OWN = "_export"
BATCH_BYTES = 1 << 30
"""Of inputs for one batch: it is held in memory, or on the disks of Spark, meanwhile."""
COMPACT_AT = 32
TARGET_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What a run has added: rows, files, bytes of them; `batches` in which it did.

    `compacted` is how many small files have become few ones. They are not counted as added.
    """

    rows: int = 0
    files: int = 0
    size: int = 0
    batches: int = 0
    compacted: int = 0

    def __add__(self, other: ExportResult) -> ExportResult:
        return ExportResult(
            self.rows + other.rows,
            self.files + other.files,
            self.size + other.size,
            self.batches + other.batches,
            self.compacted + other.compacted,
        )


def export(
    spark: SparkSession,
    inputs: str | Sequence[str],
    output: str,
    *,
    bodies: bool = False,
    mode: str = "PERMISSIVE",
    allow_loss: bool = False,
    batch_bytes: int = BATCH_BYTES,
    compact_at: int | None = COMPACT_AT,
    target_bytes: int = TARGET_BYTES,
) -> ExportResult:
    """Adds what is new in binlog folders and history stores to Parquet data sets below `output`.

    `inputs` are local folders or globs, binlogs and stores in any mix; their hosts are as in
    read_binlog. The data sets are `entries` (the usual columns, `created_at_ns`, with `bodies` the
    body) and `messages` (the usual columns and `properties`, with `bodies` the body), each in
    folders `date=.../tube=...`, of `event_time` and `storeTimestamp`, in UTC. A short entry has the
    tube of its job. Without one, because its full entry was removed before, and without a date,
    because it is a damaged place (`mode`), the folder is Hive's `__HIVE_DEFAULT_PARTITION__`.

    Folders of a date and tube that have `compact_at` small files are compacted (None: never) to
    files of `target_bytes`. `batch_bytes` of the inputs are taken at once. With `allow_loss` what
    was removed before it was read is a warning of the logger `beanstalkd_py.pipeline`. Raises
    PipelineUsageError, DataLossError, MalformedError.
    """
    binlogs, stores = _sorted_inputs([inputs] if isinstance(inputs, str) else list(inputs))
    files = Files(spark, output)
    session = settle(spark.newSession())
    tasks = session.sparkContext.defaultParallelism
    options = {"mode": mode, "minPartitions": str(tasks)}
    result = ExportResult()
    with locked(files, OWN):
        for table, paths in ((ENTRIES, binlogs), (MESSAGES_TABLE, stores)):
            if paths:
                followed = table.follow(paths, bodies, options, not allow_loss)
                light = table.follow(paths, False, options, not allow_loss)
                run = _TableExport(session, files, table, followed, light, batch_bytes)
                result += run.run()
                if compact_at is not None:
                    compaction = Compaction(session, files, run.log, target_bytes)
                    count = compaction.now_and_then(run.touched, compact_at)
                    result += ExportResult(compacted=count)
    return result


def compact(
    spark: SparkSession, output: str, *, target_bytes: int = TARGET_BYTES, least: int = 2
) -> int:
    """Makes few large files of many small ones, in each folder that has at least `least`.

    Returns how many there were of those. A kill at any moment loses nothing: the next run goes on.
    Who reads a folder at the moment it is changed lacks rows of it, or finds that a file is gone;
    nobody sees a row twice. Raises PipelineUsageError.
    """
    files = Files(spark, output)
    if not files.exists(OWN):
        raise PipelineUsageError(f"{output} is no output of an export")
    count = 0
    with locked(files, OWN):
        for table in TABLES:
            log = log_of(files, table.name)
            log.recover()
            if log.last.number:
                session = settle(spark.newSession())
                count += Compaction(session, files, log, target_bytes).everywhere(least)
    return count


def read_export(spark: SparkSession, output: str, name: str = "entries") -> DataFrame:
    """A data set of an export, with the types that it has.

    Any reader of Parquet does, but many take a tube `007` for a number. PipelineUsageError.
    """
    files = Files(spark, output)
    log = log_of(files, name)
    record = log.look()
    if record is None:
        raise PipelineUsageError(f"{output} has no exported {name}")
    if not files.exists(name):
        return spark.createDataFrame([], record.struct)
    return spark.read.schema(record.struct).parquet(files.path(name))


def log_of(files: Files, name: str) -> ExportLog:
    """The log of one data set."""
    return ExportLog(files, name, f"{OWN}/{name}")


def _sorted_inputs(inputs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those that lead to binlogs, and to stores; one may lead to both."""
    if not inputs:
        raise PipelineUsageError("no input; give a binlog folder, a history store or a glob")
    if not are_local(inputs):
        raise PipelineUsageError(
            f"input {inputs[0]} is on another file system; an export follows local folders only"
        )
    binlogs, stores = [], []
    for pattern in sorted({true_path(local(each) or each) for each in inputs}):
        places = expand(pattern)
        have = {(Path(place) / layout.COMMIT_LOG).is_dir() for place in places}
        if True in have:
            stores.append(pattern)
        if False in have:
            binlogs.append(pattern)
    return binlogs, stores


@dataclass
class _TableExport:
    """One run for one data set."""

    spark: SparkSession
    files: Files
    table: Table
    followed: Followed
    light: Followed
    """The same without bodies."""
    batch_bytes: int
    result: ExportResult = ExportResult()
    touched: set[str] = field(default_factory=set)
    """Folders of dates and tubes that have got files."""

    def __post_init__(self) -> None:
        self.log = log_of(self.files, self.table.name)

    def run(self) -> ExportResult:
        """Takes all that there is now, a batch after another."""
        ended = self.log.recover()
        if ended is not None and ended.rows:
            self._count(ended)
        self._check_columns()
        inputs, budget = self.followed.files, Budget(size=self.batch_bytes)
        until = inputs.latest()
        try:
            while (end := inputs.after(start := self.log.last.position, budget, until)) != start:
                self._take(start, end)
        except PySparkException as error:
            raise _said_by(error) from error
        return self.result

    def _check_columns(self) -> None:
        """A data set has one set of columns. Raises PipelineUsageError."""
        last, bodies = self.log.last, "body" in self.followed.schema.names
        if last.number and ("body" in last.struct.names) != bodies:
            had, has = ("with", "without") if "body" in last.struct.names else ("without", "with")
            raise PipelineUsageError(
                f"{self.files.path(self.log.data)} was begun {had} bodies, and now they are"
                f" {'' if has == 'with' else 'not '}asked for; ask as before, or export to a new"
                " folder"
            )

    def _take(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        """What lies between two positions becomes one change."""
        runs, held = self.log.last.runs, self.light.rows(self.spark, start, end)
        light = held.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            count, rows = light.count(), light
            if "body" in self.followed.schema.names:
                rows = self.followed.rows(self.spark, start, end)
            if self.table.finds_tubes:
                open_jobs = OpenJobs(self.spark, self.files, self.log)
                found = open_jobs.find(rows, light, count, runs)
                rows, runs = found.rows, found.runs
            divided = self.table.partitioned(rows)
            staged = self.log.staging()
            # One file for each folder, unless it would be very large.
            write(divided.hint("rebalance", *PARTITIONS), self.files.path(staged), *PARTITIONS)
        finally:
            light.unpersist()
        schema = divided.schema.jsonValue()
        after = Record(position=end, schema=schema, runs=runs, rows=count)
        self._count(self.log.change(after, staged))

    def _count(self, record: Record) -> None:
        self.touched |= {new.rpartition("/")[0] for _, new in record.adds}
        self.result += ExportResult(record.rows, len(record.adds), record.size, batches=1)


_ERRORS: dict[str, type[BeanstalkdError]] = {
    "DataLossError": DataLossError,
    "MalformedError": MalformedError,
    "PipelineUsageError": PipelineUsageError,
}
_OURS = re.compile(rf"beanstalkd_py\.errors\.({'|'.join(_ERRORS)}): (.*)")


def _said_by(error: PySparkException) -> Exception:
    """The error of ours that a task or the source has failed with, if it is one."""
    match = _OURS.search(str(error))
    return error if match is None else _ERRORS[match[1]](match[2].strip())
