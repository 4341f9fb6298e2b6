"""Reading history stores as it was asked for: options, columns, files, tasks, what a task does.

Knows nothing of Spark: its sources (store_source.py) and functions (store_frame.py) ask this.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sources.column_choice import choose
from beanstalkd_py.pipeline.sources.columns import Table
from beanstalkd_py.pipeline.sources.options import TARGET_BYTES, Options
from beanstalkd_py.pipeline.sources.paths import Hosts, paths_of
from beanstalkd_py.pipeline.sources.read_modes import Mode
from beanstalkd_py.pipeline.sources.reading import GONE, Reading
from beanstalkd_py.pipeline.sources.row_filters import Chosen, Selection
from beanstalkd_py.pipeline.stores import files as store_files
from beanstalkd_py.pipeline.stores.files import StoreFile
from beanstalkd_py.pipeline.stores.messages import Messages
from beanstalkd_py.pipeline.stores.tables import VIEWS

OPTIONS = (
    "columns",
    "columnNameOfCorruptRecord",
    "endingTimestamp",
    "host",
    "hostPattern",
    "includeBody",
    "includeHeaders",
    "minPartitions",
    "mode",
    "startingTimestamp",
    "subscribe",
    "subscribePattern",
    "targetPartitionBytes",
    "verifyChecksum",
    "view",
)


@dataclass(frozen=True, slots=True)
class StorePlan:
    """All that is known before files are looked for. Goes to the tasks."""

    view: str
    table: Table
    mode: Mode
    selection: Selection
    paths: tuple[str, ...]
    hosts: Hosts
    checksums: bool
    min_partitions: int | None
    target_bytes: int

    @classmethod
    def of(
        cls,
        given: Mapping[str, str],
        columns: Sequence[str] | None = None,
        known: Sequence[str] = OPTIONS,
    ) -> StorePlan:
        """Of options; `columns` are what is read, by the option or all. PipelineUsageError."""
        options = Options(given, known)
        paths = paths_of(given)
        view = options.text("view") or "messages"
        if view not in VIEWS:
            raise PipelineUsageError(f"view {view!r} is none of {', '.join(VIEWS)}")
        named = columns if columns is not None else options.names("columns")
        table = choose(VIEWS[view], options, named, cls._added(options, view))
        selection = Selection.of(
            "storeTimestamp",
            options.text("subscribe"),
            options.text("subscribePattern"),
            options.text("startingTimestamp"),
            options.text("endingTimestamp"),
        )
        missing = selection.needs() - {column.name for column in table.all}
        if missing:
            raise PipelineUsageError(
                f"the view {view} has no column {min(missing)}, so nothing can be chosen by it"
            )
        return cls(
            view=view,
            table=table,
            mode=options.mode,
            selection=selection,
            paths=tuple(paths),
            hosts=Hosts.of(paths, options.text("host"), options.text("hostPattern")),
            checksums=options.flag("verifyChecksum", True),
            min_partitions=options.number("minPartitions"),
            target_bytes=options.size("targetPartitionBytes", TARGET_BYTES),
        )

    @staticmethod
    def _added(options: Options, view: str) -> list[str]:
        """Columns that are there by options of their own."""
        if view != "messages":
            return []
        body = ["body"] if options.flag("includeBody", True) else []
        return body + (["properties"] if options.flag("includeHeaders", False) else [])

    def with_table(self, table: Table) -> StorePlan:
        """The same with other columns of the same ones."""
        return replace(self, table=table)

    def tasks(self, parallelism: int | None = None) -> list[list[StoreFile]]:
        """The files of each task. Raises PipelineUsageError, OSError."""
        files = store_files.find(self.view, self.paths, self.hosts)
        least = self.min_partitions or parallelism or os.cpu_count() or 1
        return list(store_files.divide(files, self.view, least, self.target_bytes))

    def reading(self) -> Reading[StoreFile]:
        """For the files of one task."""
        chosen = Chosen(self.table, self.selection)
        messages = Messages(chosen.decoded, self.view, self.mode, self.checksums)
        return Reading(messages.rows, messages.unreadable, chosen.of)

    def read(self, files: Sequence[StoreFile]) -> Iterator[pa.RecordBatch]:
        """Rows of local files. Raises MalformedError."""
        reading = self.reading()
        return reading.of_files(
            files,
            lambda file: mapped(file.path),
            lambda file: reading.unreadable(file, GONE),
        )


def mapped(path: str) -> Any:
    """A file's bytes. A store never cuts a file, so that it may be mapped."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_size == 0:
            return b""
        return mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(fd)
