"""The `export` job: binlogs and history stores as Delta Lake tables, incrementally.

    export(spark, ["/srv/*/binlog", "/srv/*/history"], "/srv/tables")

makes the tables `/srv/tables/entries` and `/srv/tables/messages`. A run adds the rows since the
last one. Each row is exported exactly once, even if runs are killed or concurrent: the rows of a
batch and the position after them are one commit (table.py).

This is not a streaming query, although positions are those of the streams: its checkpoint would be
a second log, and a run with few new rows takes several times as long.
"""

from __future__ import annotations

import contextlib
import json
import operator
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake.exceptions import TableNotFoundError
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.history.files import layout
from beanstalkd_py.pipeline.binlogs.follower import BinlogFollower
from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.binlogs.table import COLUMNS as ENTRY_COLUMNS
from beanstalkd_py.pipeline.connect_session import send_package
from beanstalkd_py.pipeline.failures import own_error, spark_errors
from beanstalkd_py.pipeline.jobs.export.table import DATE, ExportTable, State, Storage, overtaken
from beanstalkd_py.pipeline.sources.columns import LONG, STRING
from beanstalkd_py.pipeline.sources.connect import is_connect, parallelism
from beanstalkd_py.pipeline.sources.follower import Budget, Follower, Position
from beanstalkd_py.pipeline.sources.frames import LocalTask, of_tasks
from beanstalkd_py.pipeline.sources.paths import expand, local, true_path
from beanstalkd_py.pipeline.stores.follower import StoreFollower
from beanstalkd_py.pipeline.stores.tables import MESSAGES as MESSAGE_COLUMNS

BATCH_BYTES = 1 << 30
"""Input of one batch, which Spark caches in memory or on disk."""
COMPACT_AT = 32
TARGET_BYTES = 128 << 20
SETTINGS = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.session.timeZone": "UTC",
}
DAY_US = 86_400 * 10**6
JOB = ("host", "id", "created_at_ns")
"""Identifies a job: ids may be reused, and a job may change its shard."""
OPEN_JOBS = pa.schema([("host", STRING), ("id", LONG), ("created_at_ns", LONG), ("tube", STRING)])


@dataclass(frozen=True, slots=True)
class Source:
    """The inputs of a table; `name` is that of the table, `time` the column of its date."""

    name: str
    follower: type[Follower[Any]]
    columns: tuple[str, ...]
    time: str

    def follow(
        self, paths: Sequence[str], bodies: bool, options: dict[str, str], fail_on_loss: bool
    ) -> Follower[Any]:
        names = [*self.columns, *(["body"] if bodies else [])]
        plan = self.follower.PLAN.of({**options, "paths": json.dumps(list(paths))}, names)
        return self.follower(plan, fail_on_loss)


ENTRIES = Source(
    "entries",
    BinlogFollower,
    tuple(column.name for column in ENTRY_COLUMNS if column.is_default or column.name in JOB),
    "event_time",
)
MESSAGES = Source(
    "messages",
    StoreFollower,
    tuple(each.name for each in MESSAGE_COLUMNS if each.is_default or each.name == "properties"),
    "storeTimestamp",
)


@dataclass(frozen=True, slots=True)
class ExportResult:
    """Counts of a run.

    `compacted` is the number of small files that were merged, `faults` that of rows about damage.
    """

    rows: int = 0
    files: int = 0
    size: int = 0
    batches: int = 0
    compacted: int = 0
    faults: int = 0

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
    storage_options: dict[str, str] | None = None,
) -> ExportResult:
    """Add new rows of binlog folders and history stores to Delta Lake tables below `output`.

    `inputs` are folders or globs, binlogs and local stores in any mix; hosts are derived as in
    read_binlog. The tables are `entries` (default columns and `created_at_ns`) and `messages`
    (default columns and `properties`), with the body if `bodies`, partitioned by `date`, that of
    `event_time` and `storeTimestamp` in UTC. A short entry gets the tube of its job. The tube is
    null if the full entry was removed before it was read, the date in the row of a fault (`mode`).

    Dates with `compact_at` small files are compacted (None: never) to files of `target_bytes`. A
    batch has `batch_bytes` of the inputs. With `allow_loss` data that was removed before it was
    read is a warning of the logger `beanstalkd_py.pipeline`. `storage_options` are those of
    delta-rs for object stores. Raises PipelineUsageError, DataLossError, MalformedError.
    """
    binlogs, stores = _sorted_inputs([inputs] if isinstance(inputs, str) else list(inputs))
    folder = Storage.of_output(spark, output, storage_options)
    result = ExportResult()
    with _session(spark) as session:
        options = {"mode": mode, "minPartitions": str(parallelism(session))}
        for source, paths in ((ENTRIES, binlogs), (MESSAGES, stores)):
            if paths:
                followed = source.follow(paths, bodies, options, not allow_loss)
                without_bodies = source.follow(paths, False, options, not allow_loss)
                schema = followed.table.schema.append(pa.field(DATE, pa.date32()))
                table = ExportTable.created(folder.below(source.name), schema)
                _check_columns(table, schema)
                run = _Run(session, table, source, followed, without_bodies)
                result += run.batches(Budget(size=batch_bytes))
                if compact_at is not None:
                    least = max(compact_at, 2)
                    result += ExportResult(compacted=table.compact(session, target_bytes, least))
    return result


def compact(
    spark: SparkSession,
    output: str,
    *,
    target_bytes: int = TARGET_BYTES,
    least: int = 2,
    storage_options: dict[str, str] | None = None,
) -> int:
    """Merge the small files of each date that has at least `least`; return their number.

    Readers keep the version that they have opened: replaced files are removed after a week. Raises
    PipelineUsageError.
    """
    if target_bytes < 1:
        raise PipelineUsageError(f"target_bytes is {target_bytes}; give at least 1")
    folder = Storage.of_output(spark, output, storage_options)
    tables = [_opened(folder.below(source.name)) for source in (ENTRIES, MESSAGES)]
    if not any(tables):
        raise PipelineUsageError(
            f"{output} is not the output of an export; give the folder of export()"
        )
    with _session(spark) as session:
        return sum(table.compact(session, target_bytes, max(least, 2)) for table in tables if table)


def read_export(
    spark: SparkSession,
    output: str,
    name: str = "entries",
    *,
    storage_options: dict[str, str] | None = None,
) -> DataFrame:
    """Read the last version of a table, without Delta's jars. Raises PipelineUsageError."""
    table = _opened(Storage.of_output(spark, output, storage_options).below(name))
    if table is None:
        raise PipelineUsageError(f"{output} has no exported {name}")
    return table.read(spark, table.active_files())


def _opened(storage: Storage) -> ExportTable | None:
    try:
        return ExportTable(storage)
    except TableNotFoundError:
        return None


@contextlib.contextmanager
def _session(spark: SparkSession) -> Iterator[SparkSession]:
    """Return a session with settings of its own."""
    try:
        session = spark.newSession()
    except (AttributeError, NotImplementedError) as error:
        raise PipelineUsageError(
            f"an export through Spark Connect needs Spark 4.3, and this is {spark.version}"
        ) from error
    try:
        if is_connect(session):
            send_package(session)
        # Many shuffles of small batches.
        tasks = 2 * parallelism(session)
        for name, value in {**SETTINGS, "spark.sql.shuffle.partitions": str(tasks)}.items():
            session.conf.set(name, value)
        yield session
    finally:
        if is_connect(session):  # elsewhere that would stop all sessions
            session.stop()


def _sorted_inputs(inputs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the paths of binlogs and those of stores; a glob may be in both.

    On other file systems only binlogs can be followed.
    """
    if not inputs:
        raise PipelineUsageError("no input; give a binlog folder, a history store or a glob")
    binlogs, stores = [], []
    for pattern in sorted({true_path(local(each) or each) for each in inputs}):
        if local(pattern) is None:
            BinlogPlan.of({"path": pattern}).find()  # raises an error before a table is created
            binlogs.append(pattern)
            continue
        are_stores = {(Path(path) / layout.COMMIT_LOG).is_dir() for path in expand(pattern)}
        if True in are_stores:
            stores.append(pattern)
        if False in are_stores:
            binlogs.append(pattern)
    return binlogs, stores


def _check_columns(table: ExportTable, schema: pa.Schema) -> None:
    """Raise PipelineUsageError if the table has other columns than this run."""
    existing, wanted = set(table.schema.names), set(schema.names)
    if (existing ^ wanted) - {"body"}:
        raise PipelineUsageError(
            f"{table.storage.url} has columns of another version; export to a new folder"
        )
    if existing != wanted:
        before, now = ("with", "without") if existing > wanted else ("without", "with")
        raise PipelineUsageError(
            f"{table.storage.url} was exported {before} bodies, and this run is {now} bodies;"
            f" export {before} bodies, or to a new folder"
        )


@dataclass(frozen=True, slots=True)
class _Run:
    spark: SparkSession
    table: ExportTable
    source: Source
    followed: Follower[Any]
    without_bodies: Follower[Any]

    def batches(self, budget: Budget) -> ExportResult:
        """Export everything up to the latest position."""
        result, until = ExportResult(), self.followed.latest()
        try:
            while True:
                start = self.table.state.position
                end = self.followed.after(start, budget, until)
                if end == start:
                    return result
                result += self._batch(start, end)
        except spark_errors() as error:
            if self.table.is_outdated():  # the other export deletes files that this one reads
                raise overtaken(self.table.storage) from error
            raise own_error(str(error)) or error from error

    def _batch(self, start: Position, end: Position) -> ExportResult:
        small, open_jobs = self._rows(self.without_bodies, start, end), list[str]()
        has_bodies = "body" in self.table.schema.names
        rows = self._rows(self.followed, start, end) if has_bodies else small
        try:
            if self.source is ENTRIES:
                small.persist(StorageLevel.MEMORY_AND_DISK)
                rows, jobs = self._with_tubes(rows, small)
                open_jobs = self.table.write_open_jobs(jobs, OPEN_JOBS)
            day = f.floor(f.unix_micros(self.source.time) / f.lit(float(DAY_US))).cast("int")
            rows = rows.withColumn(DATE, f.date_from_unix_date(day))
            # One file for each date, unless that is very large.
            written = self.table.write(
                rows.hint("rebalance", DATE).sortWithinPartitions(DATE, "tube")
            )
        finally:
            small.unpersist()
        self.table.commit(State(end, open_jobs), written)
        counts = (sum(file.rows for file in written), len(written))
        size = sum(file.size for file in written)
        # Only rows about damage have no date.
        faults = sum(file.rows for file in written if file.date is None)
        return ExportResult(*counts, size=size, batches=1, faults=faults)

    def _rows(self, follower: Follower[Any], start: Position, end: Position) -> DataFrame:
        tasks = tuple(map(tuple, follower.between(start, end)))
        return of_tasks(self.spark, LocalTask(follower, tasks), follower.table)

    def _with_tubes(self, rows: DataFrame, small: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Return a batch with the tubes of short entries, and the jobs that are open after it.

        `small` are the rows without bodies. A short entry lacks its tube, which the full entry of
        its job has, in this batch or an earlier one.
        """
        earlier = self.table.storage.read(self.spark, OPEN_JOBS, self.table.state.open_jobs)
        ended = (f.col("state") == "deleted").alias("ended")
        jobs = (
            small.where("kind is not null")
            .select(*JOB, "tube", ended)
            .unionByName(earlier.withColumn("ended", f.lit(False)))
            .groupBy(*JOB)
            .agg(f.max("tube").alias("tube"), f.max("ended").alias("ended"))
        )
        tubes = jobs.select(*JOB, "tube")
        short = small.where("kind = 'short'").drop("tube").join(tubes, list(JOB), "left")
        others = rows.where("kind is null or kind <> 'short'")
        batch = others.unionByName(short, allowMissingColumns=True)
        return batch, jobs.where("not ended and tube is not null").drop("ended")
