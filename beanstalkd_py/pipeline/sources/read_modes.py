"""Spark's read modes for faults, which are unreadable places of files.

PERMISSIVE returns a row with the reason in its corrupt column, DROPMALFORMED skips the fault,
FAILFAST raises MalformedError. A torn last entry never fails a read: it was not acknowledged, or is
just being written.
"""

from __future__ import annotations

import enum

from beanstalkd_py.errors import PipelineUsageError

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
