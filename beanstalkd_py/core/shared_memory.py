"""The memory that a core shares with other processes, and what is said there of its binlog."""

from __future__ import annotations

import mmap
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from beanstalkd_py.core._core import ffi, lib


class BinlogPosition(NamedTuple):
    """A place in a binlog folder: before `offset` of binlog.<file>, and in all files before it."""

    file: int
    offset: int


def durable_position(counters: Any) -> BinlogPosition | None:
    """What of a worker's binlog will be there after a crash of the machine; (0, 0): nothing yet.

    `counters` is the worker's `bs_counters`. None: it is just being changed, so try again.
    """
    file, offset = ffi.new("uint64_t *"), ffi.new("uint64_t *")
    if lib.bs_durable_position(ffi.addressof(counters), file, offset) == 0:
        return None
    return BinlogPosition(file[0], offset[0])


def new_shared() -> Any:
    """A bs_shared of this process alone, all zeros, for a core without a parent."""
    # Mapped, because only the pages that are used should cost anything.
    memory = ffi.from_buffer(
        "char[]", mmap.mmap(-1, ffi.sizeof("bs_shared")), require_writable=True
    )
    shared = ffi.cast("bs_shared *", memory)
    _mapped[shared] = memory
    return shared


_mapped: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""Keeps the memory of a bs_shared as long as the pointer to it lives."""
