"""Decoding of files into rows, and the rows of faults, which are unreadable places."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from beanstalkd_py.errors import MalformedError
from beanstalkd_py.pipeline.sources.columns import Table
from beanstalkd_py.pipeline.sources.read_modes import Mode

Rows = Iterator[pa.RecordBatch]

REMOVED = "unreadable file: it was removed before it was read"
"""The reason in the row of a removed file."""

_LOGGER = logging.getLogger("beanstalkd_py.pipeline")


@dataclass(frozen=True, slots=True)
class Fault:
    """An unreadable place; `columns` are the known columns of its row."""

    path: str
    offset: int
    what: str
    columns: Mapping[str, Any]
    torn: bool = False


class SourceFile(Protocol):
    @property
    def path(self) -> str: ...

    def fault(self, offset: int, what: str, torn: bool = False) -> Fault: ...


File = TypeVar("File", bound=SourceFile)


class Decoder(ABC, Generic[File]):
    """Decodes the files of one task. Methods raise MalformedError."""

    def __init__(self, table: Table, mode: Mode) -> None:
        self._table = table
        self._mode = mode

    @abstractmethod
    def rows(self, file: File, data: Any) -> Rows:
        """Decode a file whose bytes do not change meanwhile."""

    def of_files(
        self,
        files: Iterable[File],
        open_file: Callable[[File], Any],
        missing: Callable[[File], Iterable[pa.RecordBatch]],
        check: Callable[[File, OSError], None],
    ) -> Rows:
        """Return the rows of all files; `missing` gives those of a removed file.

        `check` raises an error if this machine has none of the files.
        """
        for file in files:
            try:
                data = open_file(file)
            except OSError as error:
                check(file, error)
                if isinstance(error, FileNotFoundError):
                    yield from missing(file)
                else:
                    yield from self.unreadable(file, str(error.strerror))
            else:
                yield from self.rows(file, data)

    def removed(self, file: File) -> Rows:
        _LOGGER.warning("%s: %s", file.path, REMOVED)
        return self.of_fault(file.fault(0, REMOVED))

    def unreadable(self, file: File, why: str) -> Rows:
        return self.of_fault(file.fault(0, f"unreadable file: {why}"))

    def of_fault(self, fault: Fault) -> Rows:
        """Return the row of a fault, if the mode has one."""
        if self._mode is Mode.FAILFAST and not fault.torn:
            raise MalformedError(f"{fault.path}:{fault.offset}: {fault.what}")
        column = self._table.fault
        if self._mode is Mode.PERMISSIVE and column is not None:
            values = {**fault.columns, column.name: fault.what}
            # Columns that are not known are null.
            arrays = [pa.array([values.get(each.name)], each.type) for each in self._table.columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._table.schema)
