"""One Delta Lake table of an export: its files, commits and state.

Spark tasks write Parquet files into the table's folder. A commit adds them together with a
transaction of the application APPLICATION. The transaction's version is the name of a file in the
folder OWN, which has the state after the commit. Delta rejects a commit if another transaction of
the application was committed since the table was read. So one of two concurrent exports fails, and
a killed one leaves only files that no commit names: vacuum() removes those of rows, the next commit
removes those in OWN.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import FileSelector, FileSystem, PyFileSystem
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sources.follower import Position
from beanstalkd_py.pipeline.sources.frames import qualified
from beanstalkd_py.pipeline.sources.paths import local, true_path

APPLICATION = "beanstalkd_py.export"
OWN = "_export"
"""A folder of each table; readers and vacuum() ignore names with an underscore."""
DATE = "date"
"""The partition column."""
PARTITIONING = ds.partitioning(pa.schema([(DATE, pa.date32())]), flavor="hive")
WRITTEN = pa.schema([("path", pa.string()), ("size", pa.int64()), ("rows", pa.int64())])
ROW_GROUP = 1 << 16
"""Rows of a row group. They fit into memory, because a task has about 64 MB of rows."""
MOST_DATES = 1 << 20
RANDOM_BITS = 32

ActiveFile = Mapping[str, Any]
"""A file of the table: `path`, `size_bytes`, `num_records`, `partition.date`."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A folder on any file system that delta-rs supports, with its storage options."""

    url: str
    options: dict[str, str] | None = None

    @classmethod
    def of_output(cls, spark: SparkSession, output: str, options: dict[str, str] | None) -> Storage:
        """Return the output of an export. Raises PipelineUsageError for that of an old version."""
        (url,) = qualified(spark, output)
        path = local(url)
        storage = cls(url.rstrip("/") if path is None else true_path(path), options)
        try:
            is_old = storage.files().get_file_info(FileSelector(OWN, allow_not_found=True))
        except TableNotFoundError:
            return storage
        except OSError as error:
            raise PipelineUsageError(f"cannot open output {output}: {_reason(error)}") from error
        if is_old:
            raise PipelineUsageError(
                f"output {output} has plain Parquet of an earlier version instead of Delta Lake"
                " tables; export to a new folder"
            )
        return storage

    def below(self, name: str) -> Storage:
        return Storage(f"{self.url}/{name}", self.options)

    def files(self) -> FileSystem:
        return PyFileSystem(DeltaStorageHandler(self.url, self.options))

    def read(self, spark: SparkSession, schema: pa.Schema, paths: Iterable[str]) -> DataFrame:
        """Read files by Spark's own reader of Parquet."""
        top = self.url if local(self.url) is None else f"file://{self.url}"
        full, struct = [f"{top}/{path}" for path in paths], from_arrow_schema(schema)
        if not full:
            return spark.createDataFrame([], struct)
        return spark.read.schema(struct).option("basePath", top).parquet(*full)


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Writes rows of a schema to Parquet files and yields the files. A task of Spark."""

    storage: Storage
    folder: str
    name: str
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        written: list[Any] = []
        rows = (batch.cast(self.schema) for batch in batches)
        ds.write_dataset(
            pa.RecordBatchReader.from_batches(self.schema, rows),
            self.folder,
            format="parquet",
            file_options=ds.ParquetFileFormat().make_write_options(compression="zstd"),
            filesystem=self.storage.files(),
            partitioning=PARTITIONING if DATE in self.schema.names else None,
            # Each attempt at a task has its own files.
            basename_template=f"{self.name}-{uuid.uuid4().hex}-{{i}}.parquet",
            existing_data_behavior="overwrite_or_ignore",
            use_threads=False,  # keeps the order of rows
            max_partitions=MOST_DATES,
            min_rows_per_group=ROW_GROUP,
            max_rows_per_group=ROW_GROUP,
            file_visitor=written.append,
        )
        files = [(file.path, file.size, file.metadata.num_rows) for file in written]
        yield pa.RecordBatch.from_pylist(
            [dict(zip(WRITTEN.names, file, strict=True)) for file in files], WRITTEN
        )


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that a task has written; `path` is relative to the table."""

    path: str
    size: int
    rows: int

    @property
    def date(self) -> str | None:
        date = self.path.partition("/")[0].removeprefix(f"{DATE}=")
        return None if date.startswith("__") else date

    def action(self, now_ms: int, is_new_data: bool) -> AddAction:
        stats = json.dumps({"numRecords": self.rows})
        return AddAction(self.path, self.size, {DATE: self.date}, now_ms, is_new_data, stats)


@dataclass(frozen=True, slots=True)
class State:
    """The position in the inputs, and the files with the jobs that have not ended there."""

    position: Position = field(default_factory=dict)
    open_jobs: Sequence[str] = ()


class ExportTable:
    """A table as of its last commit.

    Methods that commit raise PipelineUsageError if another export has committed since.
    """

    def __init__(self, storage: Storage) -> None:
        """Open a table. Raises TableNotFoundError."""
        self.storage = storage
        self._table = DeltaTable(storage.url, storage_options=storage.options)
        self._files = storage.files()
        self._version = self._last_transaction()
        while True:
            try:
                self.state = self._read_state()
                break
            except FileNotFoundError:  # another export has committed and deleted it
                read = self._version
                self._table.update_incremental()
                self._version = self._last_transaction()
                if self._version == read:
                    raise
        self._next_version = self._new_version()

    def _last_transaction(self) -> int:
        return self._table.transaction_version(APPLICATION) or 0

    def _read_state(self) -> State:
        if not self._version:
            return State()
        with self._files.open_input_stream(_state_name(self._version)) as stream:
            return State(**json.loads(stream.read()))

    @classmethod
    def created(cls, storage: Storage, schema: pa.Schema) -> ExportTable:
        """Open a table, and create it if it does not exist. Raises PipelineUsageError."""
        try:
            with _translated_conflicts(storage):
                DeltaTable.create(
                    storage.url,
                    schema,
                    partition_by=DATE,
                    mode="ignore",
                    storage_options=storage.options,
                )
        except (DeltaError, OSError) as error:
            raise PipelineUsageError(
                f"cannot make output {storage.url}: {_reason(error)}"
            ) from error
        return cls(storage)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self._table.schema().to_arrow())

    def is_outdated(self) -> bool:
        """Whether another export has committed since this one has read the table."""
        return ExportTable(self.storage)._version != self._version

    def active_files(self) -> list[ActiveFile]:
        files: list[ActiveFile] = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        return files

    def read(self, spark: SparkSession, files: Iterable[ActiveFile]) -> DataFrame:
        return self.storage.read(spark, self.schema, [file["path"] for file in files])

    def write(self, rows: DataFrame) -> list[NewFile]:
        """Write rows to files for the next commit."""
        return self._write(rows, "", self.schema)

    def write_open_jobs(self, rows: DataFrame, schema: pa.Schema) -> list[str]:
        return [file.path for file in self._write(rows, OWN, schema)]

    def _write(self, rows: DataFrame, folder: str, schema: pa.Schema) -> list[NewFile]:
        task = WriteTask(self.storage, folder, str(self._next_version), schema)
        files = rows.select(*schema.names).mapInArrow(task, from_arrow_schema(WRITTEN)).collect()
        return [NewFile(*file) for file in files]

    def commit(
        self, state: State, adds: Iterable[NewFile], removes: Sequence[ActiveFile] = ()
    ) -> None:
        """Add files, and remove files whose rows the added ones have; `state` is that after it."""
        now_ms, version = int(time.time() * 1000), self._next_version
        actions: list[AddAction | RemoveAction] = [
            *(file.action(now_ms, not removes) for file in adds),
            *(RemoveAction(file["path"], False, now_ms) for file in removes),
        ]
        with self._files.open_output_stream(_state_name(version), buffer_size=1 << 16) as stream:
            stream.write(json.dumps(asdict(state)).encode())
        properties = CommitProperties(
            # delta-rs does not detect that another commit has removed the same files, so there
            # must be none since the table was read.
            max_commit_retries=0 if removes else None,
            app_transactions=[Transaction(APPLICATION, version)],
        )
        with _translated_conflicts(self.storage):
            self._table.create_write_transaction(
                actions, "append", self._table.schema(), DATE, commit_properties=properties
            )
            self._table.update_incremental()
            if self._last_transaction() != version:
                raise CommitFailedError("another export has committed since")
        self.state, self._version = state, version
        self._next_version = self._new_version()
        self._clean()

    def _clean(self) -> None:
        """Delete own files of earlier commits, and of exports that can no longer commit."""
        kept = {_state_name(self._version), *self.state.open_jobs}
        for file in self._files.get_file_info(FileSelector(OWN)):
            number = int(re.split("[-.]", file.base_name)[0]) >> RANDOM_BITS
            if number <= self._version >> RANDOM_BITS and f"{OWN}/{file.base_name}" not in kept:
                with contextlib.suppress(FileNotFoundError):
                    self._files.delete_file(f"{OWN}/{file.base_name}")

    def _new_version(self) -> int:
        """Return a version above the last one that no concurrent export has."""
        number = (self._version >> RANDOM_BITS) + 1
        return number << RANDOM_BITS | secrets.randbits(RANDOM_BITS)

    def compact(self, spark: SparkSession, target_bytes: int, least: int) -> int:
        """Merge small files of each date that has at least `least`; return their number.

        Spark does it, because two concurrent optimize() of delta-rs 1.6 duplicate rows.
        """
        groups: dict[Any, list[ActiveFile]] = defaultdict(list)
        sizes: dict[Any, int] = defaultdict(int)
        for file in sorted(self.active_files(), key=lambda file: int(file["size_bytes"])):
            date, size = file[f"partition.{DATE}"], file["size_bytes"]
            if 2 * size <= target_bytes and sizes[date] + size <= target_bytes:
                groups[date].append(file)
                sizes[date] += size
        old = [file for group in groups.values() if len(group) >= least for file in group]
        if not old:
            return 0
        rows = self.read(spark, old).repartition(DATE)
        new = self.write(rows.sortWithinPartitions(DATE, "tube"))
        before, after = sum(file["num_records"] for file in old), sum(file.rows for file in new)
        if before != after:
            raise PipelineUsageError(
                f"{self.storage.url} changed during compaction: {before} rows became {after};"
                " compact again when nothing else writes to it"
            )
        self.commit(self.state, new, old)
        self._table.vacuum(dry_run=False, full=True)
        return len(old)


def _state_name(version: int) -> str:
    return f"{OWN}/{version}.json"


@contextlib.contextmanager
def _translated_conflicts(storage: Storage) -> Iterator[None]:
    try:
        yield
    except CommitFailedError as error:
        raise overtaken(storage) from error


def overtaken(storage: Storage) -> PipelineUsageError:
    return PipelineUsageError(
        f"another export writes to {storage.url}; wait until it has ended, then export again"
    )


def _reason(error: Exception) -> str:
    """Join the lines of an error of delta-rs, which begin with colored arrows."""
    return re.sub(r"\s*\n\s*(\x1b\[\d+m↳\x1b\[0m )?", ": ", str(error).strip())
