"""A plan of one read: columns, filters, files and tasks, from the options of a source.

A format derives its plan from `Plan`: it finds and opens files and decodes their bytes. Imports
nothing of Spark. Plans are pickled to the tasks.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Self

import pyarrow as pa

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sources.columns import Column, Kind, Table
from beanstalkd_py.pipeline.sources.decoder import Decoder, File, Rows
from beanstalkd_py.pipeline.sources.options import TARGET_BYTES, Options
from beanstalkd_py.pipeline.sources.paths import Hosts, are_local, paths_of
from beanstalkd_py.pipeline.sources.reach import Reach
from beanstalkd_py.pipeline.sources.read_modes import Mode
from beanstalkd_py.pipeline.sources.row_filters import RowFilter, Selection

COMMON_OPTIONS = (
    *("columns", "columnNameOfCorruptRecord", "endingTimestamp", "host", "hostPattern"),
    *("includeBody", "minPartitions", "mode", "startingTimestamp", "subscribe"),
    *("subscribePattern", "targetPartitionBytes"),
)


@dataclass(frozen=True, slots=True)
class Plan(ABC, Generic[File]):
    """The checked options of a read, from which it finds and decodes files."""

    OPTIONS: ClassVar[tuple[str, ...]]
    TIME_COLUMN: ClassVar[str]

    table: Table
    mode: Mode
    selection: Selection
    paths: tuple[str, ...]
    hosts: Hosts
    min_partitions: int | None
    target_bytes: int

    @classmethod
    def of(cls, given: Mapping[str, str], columns: Sequence[str] | None = None) -> Self:
        """Make a plan of options. `columns` override the option. Raises PipelineUsageError."""
        return cls.of_options(Options(given, cls.OPTIONS), columns)

    @classmethod
    def of_options(cls, options: Options, columns: Sequence[str] | None = None) -> Self:
        named = columns if columns is not None else options.names("columns")
        table, own_fields = cls._of_format(options, named)
        paths = paths_of(options.given)
        selection = Selection.of(cls.TIME_COLUMN, options)
        missing = selection.columns() - {column.name for column in table.all}
        if missing:
            raise PipelineUsageError(
                f"the table has no column {min(missing)}, so its rows cannot be filtered by it"
            )
        return cls(
            table=table,
            mode=options.mode,
            selection=selection,
            paths=tuple(paths),
            hosts=Hosts.of(paths, options.text("host"), options.text("hostPattern")),
            min_partitions=options.number("minPartitions"),
            target_bytes=options.size("targetPartitionBytes", TARGET_BYTES),
            **own_fields,
        )

    @classmethod
    @abstractmethod
    def _of_format(
        cls, options: Options, named: Sequence[str] | None
    ) -> tuple[Table, dict[str, Any]]:
        """Return the table with the named columns, and the fields that a format adds."""

    @abstractmethod
    def decoder(self, table: Table) -> Decoder[File]:
        """Return the decoder of one task."""

    @abstractmethod
    def opener(self) -> Callable[[File], Any]:
        """Return a function that opens one file after another and may reuse their memory."""

    @abstractmethod
    def file_of(self, path: str) -> File | None:
        """Return the file at a path on any file system, None if it is not one of the plan."""

    def is_opened_by_tasks(self) -> bool:
        """Whether tasks open the files; otherwise Spark reads them. Raises PipelineUsageError."""
        return are_local(self.paths)

    @abstractmethod
    def content_globs(self) -> tuple[list[str], str | None]:
        """Return the paths and the name glob by which Spark finds the files."""

    @abstractmethod
    def find(self) -> list[File]:
        """Find local files in the order of reading. Raises PipelineUsageError, OSError."""

    @abstractmethod
    def divide(self, files: list[File], least: int) -> list[list[File]]:
        """Divide files among at least `least` tasks, if there is enough to read."""

    def with_table(self, table: Table) -> Self:
        return replace(self, table=table)

    def tasks(self, parallelism: int | None = None) -> list[list[File]]:
        """Return the files of each task. Raises PipelineUsageError, OSError."""
        least = self.min_partitions or parallelism or os.cpu_count() or 1
        return self.divide(self.find(), least)

    def decoding(self) -> tuple[Decoder[File], RowFilter]:
        """Return the decoder of a task and the filter of its rows."""
        row_filter = RowFilter(self.table, self.selection)
        return self.decoder(row_filter.decoded), row_filter

    def read(
        self,
        files: Sequence[File],
        known: Sequence[File] = (),
        missing: Callable[[File], Iterable[pa.RecordBatch]] | None = None,
    ) -> Rows:
        """Return the rows of files; `missing` gives those of a removed file.

        `known` are files of the whole read. Raises MalformedError, PipelineUsageError.
        """
        decoder, row_filter = self.decoding()
        opener = self.opener()
        check = Reach(known, opener).check
        return row_filter.apply(decoder.of_files(files, opener, missing or decoder.removed, check))


def choose_columns(
    columns: Sequence[Column],
    options: Options,
    named: Sequence[str] | None,
    added: Sequence[str] = (),
) -> Table:
    """Return the named columns in that order, or the default ones, and the added ones.

    The corrupt column is a default one in PERMISSIVE mode. Raises PipelineUsageError.
    """
    taken = {column.name.lower() for column in columns if column.kind is not Kind.FAULT}
    if options.corrupt.lower() in taken:  # Spark ignores case
        raise PipelineUsageError(
            f"columnNameOfCorruptRecord: {options.corrupt!r} is a column already; give another name"
        )
    is_shown = options.mode is Mode.PERMISSIVE
    known = [
        replace(column, name=options.corrupt, is_default=is_shown)
        if column.kind is Kind.FAULT
        else column
        for column in columns
    ]
    by_name = {column.name: column for column in known}
    if named is None:
        chosen = [column for column in known if column.is_default or column.name in added]
    else:
        for name in named:
            if name not in by_name:
                raise PipelineUsageError(f"no column {name!r}; there are {', '.join(by_name)}")
        chosen = [by_name[name] for name in dict.fromkeys((*named, *added))]
    if not chosen:
        raise PipelineUsageError("the option columns names no column; name one or leave it out")
    return Table(tuple(known), tuple(chosen))
