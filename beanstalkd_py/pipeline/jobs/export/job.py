"""The `export` job: binlogs and history stores as Parquet, incrementally.

    export(spark, ["/srv/*/binlog", "/srv/*/history"], "/srv/tables")

makes the data sets `/srv/tables/entries` and `/srv/tables/messages`. A run adds the new rows since
the last one. Each row is exported exactly once, even if runs are killed: the position in the inputs
and the rows up to it are one change of the log (log.py).

This is not a streaming query, although positions are those of the streams: its checkpoint would be
a second log, and a run with few new rows takes several times as long. Spark's file sink leaves rows
of failed batches that only Spark ignores. Here any reader of Parquet sees complete changes only;
incomplete ones are in the folder `_export`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.history.files import layout
from beanstalkd_py.pipeline.binlogs.table import COLUMNS as ENTRY_COLUMNS
from beanstalkd_py.pipeline.failures import own_error
from beanstalkd_py.pipeline.jobs.export.compaction import Compaction
from beanstalkd_py.pipeline.jobs.export.files import Files, locked
from beanstalkd_py.pipeline.jobs.export.log import ExportLog, Record
from beanstalkd_py.pipeline.jobs.export.tables import (
    DATA_SETS,
    ENTRIES,
    MESSAGES_SET,
    PARTITIONS,
    DataSet,
    FollowedFiles,
    write_parquet,
)
from beanstalkd_py.pipeline.jobs.export.tubes import OpenJobs
from beanstalkd_py.pipeline.sources.follower import Budget, Position
from beanstalkd_py.pipeline.sources.frames import are_local
from beanstalkd_py.pipeline.sources.paths import expand, local, true_path

COLUMNS = tuple(column.name for column in ENTRY_COLUMNS if column.name in ENTRIES.columns)
OWN = "_export"
BATCH_BYTES = 1 << 30
"""Input of one batch, which Spark caches in memory or on disk."""
COMPACT_AT = 32
SETTINGS = {
    # Known to all readers, and with statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
}
TARGET_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What a run has added; `compacted` is the number of small files that were merged."""

    rows: int = 0
    files: int = 0
    size: int = 0
    batches: int = 0
    compacted: int = 0

    def __add__(self, other: ExportResult) -> ExportResult:
        return ExportResult(*map(operator.add, astuple(self), astuple(other)))


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
    """Add new rows of binlog folders and history stores to Parquet data sets below `output`.

    `inputs` are local folders or globs, binlogs and stores in any mix; hosts are derived as in
    read_binlog. The data sets are `entries` (default columns and `created_at_ns`) and `messages`
    (default columns and `properties`), with the body if `bodies`, in folders `date=.../tube=...` by
    `event_time` and `storeTimestamp` in UTC. A short entry gets the tube of its job. If the tube or
    the date is unknown, because the full entry was removed or the row is about a fault (`mode`),
    the folder is Hive's `__HIVE_DEFAULT_PARTITION__`.

    Folders with `compact_at` small files are compacted (None: never) to files of `target_bytes`. A
    batch has `batch_bytes` of the inputs. With `allow_loss` data that was removed before it was
    read is a warning of the logger `beanstalkd_py.pipeline`. Raises PipelineUsageError,
    DataLossError, MalformedError.
    """
    binlogs, stores = _sorted_inputs([inputs] if isinstance(inputs, str) else list(inputs))
    files = Files(spark, output)
    session = _session(spark)
    tasks = session.sparkContext.defaultParallelism
    options = {"mode": mode, "minPartitions": str(tasks)}
    result = ExportResult()
    with locked(files, OWN):
        for data_set, paths in ((ENTRIES, binlogs), (MESSAGES_SET, stores)):
            if paths:
                followed = data_set.follow(paths, bodies, options, not allow_loss)
                light = data_set.follow(paths, False, options, not allow_loss)
                run = _DataSetExport(session, files, data_set, followed, light, batch_bytes)
                result += run.run()
                if compact_at is not None:
                    compaction = Compaction(session, files, run.log, target_bytes)
                    count = compaction.amortized(run.touched, compact_at)
                    result += ExportResult(compacted=count)
    return result


def compact(
    spark: SparkSession, output: str, *, target_bytes: int = TARGET_BYTES, least: int = 2
) -> int:
    """Merge the small files of each folder that has at least `least`; return their number.

    Compaction is crash-safe: the next run continues. Concurrent readers may miss rows or fail on a
    removed file; they never see duplicates. Raises PipelineUsageError.
    """
    files = Files(spark, output)
    if not files.exists(OWN):
        raise PipelineUsageError(
            f"{output} is not the output of an export; give the folder of export()"
        )
    count = 0
    with locked(files, OWN):
        for data_set in DATA_SETS:
            log = log_of(files, data_set.name)
            log.recover()
            if log.last.number:
                session = _session(spark)
                count += Compaction(session, files, log, target_bytes).everywhere(least)
    return count


def read_export(spark: SparkSession, output: str, name: str = "entries") -> DataFrame:
    """Read a data set with its own types. Raises PipelineUsageError.

    Other readers of Parquet may take a tube `007` for a number.
    """
    files = Files(spark, output)
    log = log_of(files, name)
    record = log.look()
    if record is None:
        raise PipelineUsageError(f"{output} has no exported {name}")
    if not files.exists(name):
        return spark.createDataFrame([], record.struct)
    return spark.read.schema(record.struct).parquet(files.path(name))


def _session(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    # Many shuffles of small batches.
    tasks = 2 * session.sparkContext.defaultParallelism
    for name, value in {**SETTINGS, "spark.sql.shuffle.partitions": str(tasks)}.items():
        session.conf.set(name, value)
    return session


def log_of(files: Files, name: str) -> ExportLog:
    return ExportLog(files, name, f"{OWN}/{name}")


def _sorted_inputs(inputs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the paths of binlogs and those of stores; a glob may be in both."""
    if not inputs:
        raise PipelineUsageError("no input; give a binlog folder, a history store or a glob")
    if not are_local(inputs):
        raise PipelineUsageError(
            f"input {inputs[0]} is on another file system; an export reads local folders only"
        )
    binlogs, stores = [], []
    for pattern in sorted({true_path(local(each) or each) for each in inputs}):
        have = {(Path(path) / layout.COMMIT_LOG).is_dir() for path in expand(pattern)}
        if True in have:
            stores.append(pattern)
        if False in have:
            binlogs.append(pattern)
    return binlogs, stores


@dataclass
class _DataSetExport:
    """One run for one data set. `light` is `followed` without bodies.

    `touched` are the folders that have got files.
    """

    spark: SparkSession
    files: Files
    data_set: DataSet
    followed: FollowedFiles
    light: FollowedFiles
    batch_bytes: int
    result: ExportResult = ExportResult()
    touched: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.log = log_of(self.files, self.data_set.name)

    def run(self) -> ExportResult:
        ended = self.log.recover()
        if ended is not None and ended.rows:
            self._count(ended)
        self._check_columns()
        inputs, budget = self.followed.files, Budget(size=self.batch_bytes)
        until = inputs.latest()
        try:
            while (end := inputs.after(start := self.log.last.position, budget, until)) != start:
                self._export(start, end)
        except PySparkException as error:
            raise own_error(str(error)) or error from error
        return self.result

    def _check_columns(self) -> None:
        """Raise PipelineUsageError if the data set has other columns than this run."""
        last, bodies = self.log.last, "body" in self.followed.table.schema.names
        if last.number and ("body" in last.struct.names) != bodies:
            had, has = ("without", "with") if bodies else ("with", "without")
            raise PipelineUsageError(
                f"{self.files.path(self.log.data)} was exported {had} bodies, and this run is {has}"
                f" bodies; export {had} bodies, or to a new folder"
            )

    def _export(self, start: Position, end: Position) -> None:
        runs, held = self.log.last.runs, self.light.rows(self.spark, start, end)
        light = held.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            count, rows = light.count(), light
            if "body" in self.followed.table.schema.names:
                rows = self.followed.rows(self.spark, start, end)
            if self.data_set.finds_tubes:
                open_jobs = OpenJobs(self.spark, self.files, self.log)
                rows, runs = open_jobs.find(rows, light, count, runs)
            divided = self.data_set.partitioned(rows)
            staged = self.log.staging()
            # One file for each folder, unless that is very large.
            write_parquet(
                divided.hint("rebalance", *PARTITIONS), self.files.path(staged), *PARTITIONS
            )
        finally:
            light.unpersist()
        schema = divided.schema.jsonValue()
        after = Record(position=end, schema=schema, runs=runs, rows=count)
        self._count(self.log.change(after, staged))

    def _count(self, record: Record) -> None:
        self.touched |= {new.rpartition("/")[0] for _, new in record.adds}
        self.result += ExportResult(record.rows, len(record.adds), record.size, batches=1)
