"""Binlogs and history stores as Parquet, partitioned by date and tube, a bit more with each run.

    export(spark, ["/srv/*/binlog", "/srv/*/history"], "/srv/tables")

makes the data sets `/srv/tables/entries` and `/srv/tables/messages`. A run takes what is new since
the last one, beside running servers too. Each row is in the data set once, whatever is killed when:
a streaming query keeps what has been taken, and a batch gets into the data set by a change of
export_log.py, which knows its batch.

Spark's own sink for files is not used: the rows of a batch that was killed are in its folder, and
only Spark itself knows not to read them. Here whatever reads a folder of Parquet files sees what is
complete, and nothing that may come again. What is not in the data set yet is in `_export` beside
it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from beanstalkd_py.errors import BeanstalkdError, DataLossError, MalformedError, PipelineUsageError
from beanstalkd_py.history import layout
from beanstalkd_py.pipeline.binlog_table import COLUMNS as ENTRY_COLUMNS
from beanstalkd_py.pipeline.frames import are_local
from beanstalkd_py.pipeline.jobs.export_compaction import Compaction
from beanstalkd_py.pipeline.jobs.export_files import Files
from beanstalkd_py.pipeline.jobs.export_lock import locked
from beanstalkd_py.pipeline.jobs.export_log import ExportLog, Record
from beanstalkd_py.pipeline.jobs.export_tables import (
    ENTRIES,
    MESSAGES_TABLE,
    PARTITIONS,
    TABLES,
    Table,
)
from beanstalkd_py.pipeline.jobs.export_tubes import OpenJobs
from beanstalkd_py.pipeline.paths import expand, local
from beanstalkd_py.pipeline.sources import register

COLUMNS = tuple(column.name for column in ENTRY_COLUMNS if column.name in ENTRIES.columns)
OWN = "_export"
BATCH_BYTES = "1g"
"""Of binlogs or stores for one batch: it is held on the disks of Spark meanwhile."""
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
    fail_on_loss: bool = True,
    batch_bytes: str = BATCH_BYTES,
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
    files of `target_bytes`. Raises PipelineUsageError, DataLossError, MalformedError.
    """
    binlogs, stores = _sorted_inputs([inputs] if isinstance(inputs, str) else list(inputs))
    files = Files(spark, output)
    options = {
        "mode": mode,
        "failOnDataLoss": str(fail_on_loss).lower(),
        "maxBytesPerTrigger": batch_bytes,
    }
    register(spark)
    result = ExportResult()
    with locked(files, OWN):
        for table, paths in ((ENTRIES, binlogs), (MESSAGES_TABLE, stores)):
            if paths:
                run = _TableExport(spark, files, table, bodies)
                result += run.run(paths, options)
                if compact_at is not None:
                    compaction = Compaction(spark, files, run.log, target_bytes)
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
                count += Compaction(spark, files, log, target_bytes).everywhere(least)
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
    for pattern in inputs:
        places = expand(local(pattern) or pattern)
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
    bodies: bool
    result: ExportResult = ExportResult()
    touched: set[str] = field(default_factory=set)
    """Folders of dates and tubes that have got files."""
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self.log = log_of(self.files, self.table.name)

    def run(self, paths: Sequence[str], options: dict[str, str]) -> ExportResult:
        """Takes all that there is now."""
        ended = self.log.recover()
        if ended is not None and ended.rows:
            self._count(ended)
        self._check_columns()
        try:
            rows = self.table.stream(self.spark, paths, self.bodies, options)
            self._follow(rows)
        except PySparkException as error:
            raise (self.failure or _said_by(error)) from error
        return self.result

    def _follow(self, rows: DataFrame) -> None:
        writer = rows.writeStream.foreachBatch(self._take).trigger(availableNow=True)
        checkpoint = self.files.path(f"{self.log.own}/checkpoint")
        query = writer.option("checkpointLocation", checkpoint).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def _check_columns(self) -> None:
        """A data set has one set of columns. Raises PipelineUsageError."""
        last = self.log.last
        if not last.number:
            return
        if ("body" in last.struct.names) != self.bodies:
            had, has = ("with", "without") if "body" in last.struct.names else ("without", "with")
            raise PipelineUsageError(
                f"{self.files.path(self.log.data)} was begun {had} bodies, and now they are"
                f" {'' if has == 'with' else 'not '}asked for; ask as before, or export to a new"
                " folder"
            )

    def _take(self, batch: DataFrame, number: int) -> None:
        try:
            self._take_batch(batch, number)
        except BaseException as failure:
            self.failure = failure
            raise

    def _take_batch(self, batch: DataFrame, number: int) -> None:
        last = self.log.last
        if number <= last.batch:
            return  # it was killed after the change, before the checkpoint said so
        if number != last.batch + 1:
            raise PipelineUsageError(
                f"{self.files.path(self.log.own)} has batch {last.batch} and is to get {number}:"
                " something has changed its files; export to a new folder"
            )
        spark = batch.sparkSession
        # A batch is a job like any other: how many tasks it takes is best seen when it runs.
        spark.conf.set("spark.sql.adaptive.enabled", "true")
        light = batch.drop("body").persist(StorageLevel.MEMORY_AND_DISK)
        try:
            rows, runs = batch if self.bodies else light, last.runs
            if self.table.finds_tubes:
                found = OpenJobs(spark, self.files, self.log).find(rows, light, runs)
                rows, runs = found.rows, found.runs
            staged = self.log.staging()
            written, schema = self._write(self.table.partitioned(rows), staged)
        finally:
            light.unpersist()
        after = Record(batch=number, schema=schema, runs=runs, rows=written)
        self._count(self.log.change(after, staged))

    def _write(self, rows: DataFrame, staged: str) -> tuple[int, dict[str, object]]:
        """One file for each folder, unless it would be very large."""
        seen = Observation()
        counted = rows.hint("rebalance", *PARTITIONS).observe(seen, f.count(f.lit(1)).alias("n"))
        writer = counted.write.option("compression", "zstd").partitionBy(*PARTITIONS)
        writer.parquet(self.files.path(staged))
        return int(seen.get["n"]), rows.schema.jsonValue()

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
