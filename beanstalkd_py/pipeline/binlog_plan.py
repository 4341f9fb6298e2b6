"""Reading binlogs as it was asked for: options, columns, files, tasks, and what a task does.

Knows nothing of Spark: its sources (binlog_source.py) and functions (reading.py) ask this.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from beanstalkd_py.pipeline import binlog_files
from beanstalkd_py.pipeline.binlog_table import COLUMNS
from beanstalkd_py.pipeline.choosing import choose
from beanstalkd_py.pipeline.columns import Table
from beanstalkd_py.pipeline.entries import BinlogFile, Entries
from beanstalkd_py.pipeline.faults import Mode
from beanstalkd_py.pipeline.memory import Memory
from beanstalkd_py.pipeline.options import Options
from beanstalkd_py.pipeline.paths import Hosts, paths_of
from beanstalkd_py.pipeline.selection import Chosen, Selection

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
TARGET_BYTES = 128 << 20
"""Of files for one task, as Spark's own file sources have it."""
GONE = "it was removed before it was read"


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

    def read(self, files: Sequence[BinlogFile]) -> Iterator[pa.RecordBatch]:
        """Rows of local files. Raises MalformedError."""
        reading = Reading(self)
        memory = Memory()
        for file in files:
            try:
                data = self._bytes(memory, file)
            except FileNotFoundError:
                yield from reading.unreadable(file, GONE)
                continue
            except OSError as error:
                yield from reading.unreadable(file, str(error.strerror))
                continue
            yield from reading.rows(file, data)

    @staticmethod
    def _bytes(memory: Memory, file: BinlogFile) -> memoryview:
        try:
            return memory.read(file.path)
        except FileNotFoundError:
            if file.path.endswith(".done"):
                raise
            return memory.read(file.path + ".done")  # it has been archived meanwhile


class Reading:
    """Files of one task, whose bytes somebody has."""

    def __init__(self, plan: BinlogPlan) -> None:
        chosen = Chosen(plan.table, plan.selection)
        self._entries = Entries(chosen.decoded, plan.mode)
        self._chosen = chosen.of

    def rows(self, file: BinlogFile, data: Any) -> Iterator[pa.RecordBatch]:
        """Of a file, as they are wanted. Raises MalformedError."""
        return self._chosen(self._entries.rows(file, data))

    def unreadable(self, file: BinlogFile, why: str) -> Iterator[pa.RecordBatch]:
        """Of one that cannot be read. Raises MalformedError."""
        return self._chosen(self._entries.unreadable(file, why))
