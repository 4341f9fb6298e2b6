"""What a source does about places that cannot be read: Spark's three modes.

PERMISSIVE gives a row that has the reason in its corrupt column, DROPMALFORMED leaves the place
out, FAILFAST fails. What a crash left of a last entry is said by the first and fails nothing: it
was never acknowledged, or is just being written.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from beanstalkd_py.errors import MalformedError, PipelineUsageError
from beanstalkd_py.pipeline.sources.columns import Table, fault_row

CORRUPT = "_corrupt_record"
"""The corrupt column, unless it is given another name."""


class Mode(enum.Enum):
    """Spark's names."""

    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"
    FAILFAST = "FAILFAST"

    @classmethod
    def of(cls, name: str) -> Mode:
        """Raises PipelineUsageError."""
        try:
            return cls(name.upper())
        except ValueError:
            known = ", ".join(mode.value for mode in cls)
            raise PipelineUsageError(f"mode {name!r} is none of {known}") from None


@dataclass(frozen=True, slots=True)
class Fault:
    """A place of a file. `constants` are the file's columns; `at` is where the column says so."""

    path: str
    offset: int
    what: str
    constants: Mapping[str, Any]
    at: Mapping[str, Any]
    torn: bool = False


def rows_of(fault: Fault, table: Table, mode: Mode) -> Iterator[pa.RecordBatch]:
    """What comes out in its place. Raises MalformedError."""
    if mode is Mode.FAILFAST and not fault.torn:
        raise MalformedError(f"{fault.path}:{fault.offset}: {fault.what}")
    column = table.fault
    if mode is Mode.PERMISSIVE and column is not None:
        yield fault_row(table, {**fault.constants, **fault.at, column.name: fault.what})
