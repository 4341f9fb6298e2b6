"""Reading binlogs as it was asked for: options, columns, files, tasks, and what a task does.

Knows nothing of Spark: its sources (binlog_source.py) and functions (binlog_frame.py) ask this.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from beanstalkd_py.pipeline.binlogs import files as binlog_files
from beanstalkd_py.pipeline.binlogs.entries import BinlogFile, Entries
from beanstalkd_py.pipeline.binlogs.table import COLUMNS
from beanstalkd_py.pipeline.sources.column_choice import choose
from beanstalkd_py.pipeline.sources.columns import Table
from beanstalkd_py.pipeline.sources.file_buffer import Memory
from beanstalkd_py.pipeline.sources.options import TARGET_BYTES, Options
from beanstalkd_py.pipeline.sources.paths import Hosts, paths_of
from beanstalkd_py.pipeline.sources.read_modes import Mode
from beanstalkd_py.pipeline.sources.reading import GONE, Reading
from beanstalkd_py.pipeline.sources.row_filters import Chosen, Selection

OPTIONS = (
    "columns",
    "columnNameOfCorruptRecord",
    "endingTimestamp",
    "host",
    "hostPattern",
    "includeBody",
    "minPartitions",
    "mode",
    "pathGlobFilter",
    "recursiveFileLookup",
    "startingTimestamp",
    "subscribe",
    "subscribePattern",
    "targetPartitionBytes",
)


@dataclass(frozen=True, slots=True)
class BinlogPlan:
    """All that is known before files are looked for. Goes to the tasks."""

    table: Table
    mode: Mode
    selection: Selection
    lookup: binlog_files.Lookup
    min_partitions: int | None
    target_bytes: int

    @classmethod
    def of(
        cls,
        given: Mapping[str, str],
        columns: Sequence[str] | None = None,
        known: Sequence[str] = OPTIONS,
    ) -> BinlogPlan:
        """Of options; `columns` are those named, by the option or all. PipelineUsageError."""
        options = Options(given, known)
        paths = paths_of(given)
        added = ["body"] if options.flag("includeBody", False) else []
        named = columns if columns is not None else options.names("columns")
        if named is not None:
            named = [*named, *added]
        hosts = Hosts.of(paths, options.text("host"), options.text("hostPattern"))
        return cls(
            table=choose(COLUMNS, options, named, added),
            mode=options.mode,
            selection=Selection.of(
                "event_time",
                options.text("subscribe"),
                options.text("subscribePattern"),
                options.text("startingTimestamp"),
                options.text("endingTimestamp"),
            ),
            lookup=binlog_files.Lookup(
                tuple(paths),
                hosts,
                options.text("pathGlobFilter"),
                options.flag("recursiveFileLookup", False),
            ),
            min_partitions=options.number("minPartitions"),
            target_bytes=options.size("targetPartitionBytes", TARGET_BYTES),
        )

    def with_table(self, table: Table) -> BinlogPlan:
        """The same with other columns of the same ones."""
        return replace(self, table=table)

    def tasks(self, parallelism: int | None = None) -> list[list[BinlogFile]]:
        """The files of each task. Raises PipelineUsageError, OSError."""
        files = binlog_files.find(self.lookup)
        least = self.min_partitions or parallelism or os.cpu_count() or 1
        return binlog_files.pack(files, least, self.target_bytes)

    def reading(self) -> Reading[BinlogFile]:
        """For the files of one task."""
        chosen = Chosen(self.table, self.selection)
        entries = Entries(chosen.decoded, self.mode, binlog_files.is_followed)
        return Reading(entries.rows, entries.unreadable, chosen.of)

    def read(self, files: Sequence[BinlogFile]) -> Iterator[pa.RecordBatch]:
        """Rows of local files. Raises MalformedError."""
        reading, memory = self.reading(), Memory()
        return reading.of_files(
            files,
            lambda file: read_file(memory, file),
            lambda file: reading.unreadable(file, GONE),
        )


def read_file(memory: Memory, file: BinlogFile) -> memoryview:
    """Its bytes, by its other name if it has been archived meanwhile. Raises OSError."""
    try:
        return memory.read(file.path)
    except FileNotFoundError:
        if file.path.endswith(".done"):
            raise
        return memory.read(file.path + ".done")
