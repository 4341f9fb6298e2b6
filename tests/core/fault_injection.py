"""Injected faults of the binlog's system calls.

Faults apply to the whole process, not to one core.
"""

from __future__ import annotations

import enum

from beanstalkd_py.core._core import lib


class Call(enum.IntEnum):
    OPEN = lib.BS_IO_OPEN
    WRITE = lib.BS_IO_WRITE
    READ = lib.BS_IO_READ
    DATASYNC = lib.BS_IO_DATASYNC
    SYNC = lib.BS_IO_SYNC
    TRUNCATE = lib.BS_IO_TRUNCATE
    RENAME = lib.BS_IO_RENAME
    LINK = lib.BS_IO_LINK
    UNLINK = lib.BS_IO_UNLINK
    LOCK = lib.BS_IO_LOCK
    FILL = lib.BS_IO_FILL  # the zeros of a new file
    NOTE = lib.BS_IO_NOTE  # the line in the lock file


def fail(*calls: Call, nth: int = 1, error: int, lasting: bool = False) -> None:
    """Make the nth call from now (1 is the next), of these kinds counted together, fail.

    `error` is an errno. With `lasting` all later ones fail too. A failing write first writes half
    of its bytes.
    """
    lib.bs_io_fail(sum(1 << call for call in calls), nth, error, int(lasting))


def heal() -> None:
    lib.bs_io_fail(0, 0, 0, 0)


def count(call: Call) -> int:
    """Return the calls of one kind since the process started."""
    return lib.bs_io_calls(call)
