"""A plan of one read: columns, filters, files and tasks, from the options of a source.

A format derives its plan from `Plan`: it finds and opens files and decodes their bytes. Imports
nothing of Spark. Plans are pickled to the tasks.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import pyarrow as pa

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sources.columns import Column, Kind, Table
from beanstalkd_py.pipeline.sources.options import TARGET_BYTES, Options
from beanstalkd_py.pipeline.sources.paths import Hosts, paths_of
from beanstalkd_py.pipeline.sources.read_modes import Mode
from beanstalkd_py.pipeline.sources.row_filters import RowFilter, Selection

COMMON_OPTIONS = (
    *("columns", "columnNameOfCorruptRecord", "endingTimestamp", "host", "hostPattern"),
    *("includeBody", "minPartitions", "mode", "startingTimestamp", "subscribe"),
    *("subscribePattern", "targetPartitionBytes"),
)

File = TypeVar("File")
Rows = Iterator[pa.RecordBatch]


_Input = TypeVar("_Input", contravariant=True)


class Decoder(Protocol[_Input]):
    """Decodes the files of one task. Methods raise MalformedError."""

    def rows(self, file: _Input, data: Any) -> Rows:
        """Decode a file whose bytes do not change meanwhile."""

    def unreadable(self, file: _Input, why: str) -> Rows:
        """Return the rows of a file that cannot be read."""


class Reading(Generic[File]):
    """Reads the files of one task and filters their rows. Methods raise MalformedError."""

    def __init__(self, decoder: Decoder[File], row_filter: RowFilter) -> None:
        self._decoder = decoder
        self._filter = row_filter

    def rows(self, file: File, data: Any) -> Rows:
        return self._filter.apply(self._decoder.rows(file, data))

    def unreadable(self, file: File, why: str) -> Rows:
        return self._filter.apply(self._decoder.unreadable(file, why))

    def of_files(
        self,
        files: Iterable[File],
        open_file: Callable[[File], Any],
        missing: Callable[[File], Iterable[pa.RecordBatch]],
    ) -> Rows:
        """Return the rows of all files; `missing` gives those of a removed file."""
        for file in files:
            try:
                data = open_file(file)
            except FileNotFoundError:
                yield from missing(file)
            except OSError as error:
                yield from self.unreadable(file, str(error.strerror))
            else:
                yield from self.rows(file, data)


@dataclass(frozen=True, slots=True)
class Plan(ABC, Generic[File]):
    """What a read needs to know before it looks for files."""

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
    @abstractmethod
    def of(
        cls,
        given: Mapping[str, str],
        columns: Sequence[str] | None = None,
        known: Sequence[str] | None = None,
    ) -> Self:
        """Make a plan of options. `columns` override the option. Raises PipelineUsageError."""

    @classmethod
    def _common(cls, given: Mapping[str, str], options: Options, table: Table) -> dict[str, Any]:
        paths = paths_of(given)
        selection = Selection.of(
            cls.TIME_COLUMN,
            options.text("subscribe"),
            options.text("subscribePattern"),
            options.text("startingTimestamp"),
            options.text("endingTimestamp"),
        )
        missing = selection.columns() - {column.name for column in table.all}
        if missing:
            raise PipelineUsageError(
                f"the table has no column {min(missing)}, so its rows cannot be filtered by it"
            )
        return {
            "table": table,
            "mode": options.mode,
            "selection": selection,
            "paths": tuple(paths),
            "hosts": Hosts.of(paths, options.text("host"), options.text("hostPattern")),
            "min_partitions": options.number("minPartitions"),
            "target_bytes": options.size("targetPartitionBytes", TARGET_BYTES),
        }

    @abstractmethod
    def decoder(self, table: Table) -> Decoder[File]:
        """Return the decoder of one task."""

    @abstractmethod
    def opener(self) -> Callable[[File], Any]:
        """Return a function that opens one file after another and may reuse their memory."""

    @abstractmethod
    def file_of(self, path: str) -> File | None:
        """Return the file at a path on any file system, None if it is not one of the plan."""

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

    def reading(self) -> Reading[File]:
        row_filter = RowFilter(self.table, self.selection)
        return Reading(self.decoder(row_filter.decoded), row_filter)

    def read(self, files: Sequence[File]) -> Rows:
        reading = self.reading()
        return reading.of_files(
            files,
            self.opener(),
            lambda file: reading.unreadable(file, "it was removed before it was read"),
        )


def choose(
    columns: Sequence[Column],
    options: Options,
    named: Sequence[str] | None,
    added: Sequence[str] = (),
) -> Table:
    """Return the named columns in that order, or the default and the added ones.

    The corrupt column is a default one in PERMISSIVE mode. Raises PipelineUsageError.
    """
    others = {column.name.lower() for column in columns if column.kind is not Kind.FAULT}
    if options.corrupt.lower() in others:  # Spark ignores case
        raise PipelineUsageError(
            f"columnNameOfCorruptRecord: {options.corrupt!r} is a column already; give another name"
        )
    is_shown = options.mode is Mode.PERMISSIVE
    known = [
        replace(column, name=options.corrupt, usual=is_shown)
        if column.kind is Kind.FAULT
        else column
        for column in columns
    ]
    by_name = {column.name: column for column in known}
    if named is None:
        chosen = [column for column in known if column.usual or column.name in added]
    else:
        for name in named:
            if name not in by_name:
                raise PipelineUsageError(f"no column {name!r}; there are {', '.join(by_name)}")
        chosen = [by_name[name] for name in dict.fromkeys(named)]
    if not chosen:
        raise PipelineUsageError("the option columns names no column; name one or leave it out")
    return Table(tuple(known), tuple(chosen))
