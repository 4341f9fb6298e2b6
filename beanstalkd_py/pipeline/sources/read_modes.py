"""Spark's read modes for faults, which are unreadable places of files.

PERMISSIVE returns a row with the reason in its corrupt column, DROPMALFORMED skips the fault,
FAILFAST raises MalformedError. A torn last entry never fails a read: it was not acknowledged, or is
just being written.
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
"""Default name of the corrupt column."""


class Mode(enum.Enum):
    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"
    FAILFAST = "FAILFAST"

    @classmethod
    def of(cls, name: str) -> Mode:
        try:
            return cls(name.upper())
        except ValueError:
            known = ", ".join(mode.value for mode in cls)
            raise PipelineUsageError(f"no mode {name!r}; there are {known}") from None


@dataclass(frozen=True, slots=True)
class Fault:
    """An unreadable place. `constants` and `at` are the known columns of its row."""

    path: str
    offset: int
    what: str
    constants: Mapping[str, Any]
    at: Mapping[str, Any]
    torn: bool = False


def rows_of(fault: Fault, table: Table, mode: Mode) -> Iterator[pa.RecordBatch]:
    """Return the row of a fault, if the mode has one. Raises MalformedError."""
    if mode is Mode.FAILFAST and not fault.torn:
        raise MalformedError(f"{fault.path}:{fault.offset}: {fault.what}")
    column = table.fault
    if mode is Mode.PERMISSIVE and column is not None:
        yield fault_row(table, {**fault.constants, **fault.at, column.name: fault.what})
