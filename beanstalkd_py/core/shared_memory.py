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
