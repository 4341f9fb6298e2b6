"""The memory that a core shares with other processes, and the binlog's durable position in it."""

from __future__ import annotations

import mmap
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from beanstalkd_py.core._core import ffi, lib


class BinlogPosition(NamedTuple):
    """All files before binlog.<file>, and the bytes of it before `offset`."""

    file: int
    offset: int


def durable_position(counters: Any) -> BinlogPosition | None:
    """Return the durable position of a worker's binlog; (0, 0): none yet.

    `counters` is its `bs_counters`. None: it is being changed; call again.
    """
    file, offset = ffi.new("uint64_t *"), ffi.new("uint64_t *")
    if lib.bs_durable_position(ffi.addressof(counters), file, offset) == 0:
        return None
    return BinlogPosition(file[0], offset[0])


def publish_durable_position(counters: Any, position: BinlogPosition) -> None:
    """Publish the durable position of a standby's folder, which no worker writes."""
    lib.bs_publish_durable_position(ffi.addressof(counters), position.file, position.offset)


LEASE_ENDED = 1
"""A time of CLOCK_BOOTTIME that is over: the end of a lease that is lost."""


def offered_position(shared: Any, worker: int) -> BinlogPosition | None:
    """Return the position up to which a worker's binlog is to be replicated; (0, 0): none yet.

    `shared` is a `bs_shared *`. None: it is being changed; call again.
    """
    file, offset = ffi.new("uint64_t *"), ffi.new("uint64_t *")
    if lib.bs_offered_position(shared, worker, file, offset) == 0:
        return None
    return BinlogPosition(file[0], offset[0])


def stored_position(shared: Any, worker: int) -> BinlogPosition | None:
    """Return the last published position of `publish_stored_position`, as `offered_position`."""
    file, offset = ffi.new("uint64_t *"), ffi.new("uint64_t *")
    if lib.bs_stored_position(shared, worker, file, offset) == 0:
        return None
    return BinlogPosition(file[0], offset[0])


def publish_stored_position(shared: Any, worker: int, position: BinlogPosition) -> None:
    """Publish the position up to which a worker's binlog is stored elsewhere, for the worker.

    On a standby it is the position up to which the folder is a copy.
    """
    lib.bs_publish_stored_position(shared, worker, position.file, position.offset)


def set_lease_end(shared: Any, end_boot_ns: int) -> None:
    """Set when the server's lease ends: nanoseconds of CLOCK_BOOTTIME, or 0 for no lease."""
    lib.bs_set_lease_end(shared, end_boot_ns)


def new_shared() -> Any:
    """Return a zeroed bs_shared of this process, for a core without a parent."""
    # Mapped, because only the pages that are used should cost anything.
    memory = ffi.from_buffer(
        "char[]", mmap.mmap(-1, ffi.sizeof("bs_shared")), require_writable=True
    )
    shared = ffi.cast("bs_shared *", memory)
    _mapped[shared] = memory
    return shared


_mapped: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""Keeps the memory of a bs_shared as long as the pointer to it lives."""
