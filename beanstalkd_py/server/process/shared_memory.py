"""The memory that all processes share: bs_shared of csrc/api/types.h in an anonymous file.

types.h defines the writer of each field: a worker writes its own counters, the parent the drain
flag and the counters of ended workers. All workers advance the job-id counter atomically in C.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

from beanstalkd_py.core._core import ffi, lib

SHARED_BYTES = ffi.sizeof("bs_shared")
MAX_WORKERS: int = lib.BS_MAX_WORKERS

GAUGES = (
    *("urgent", "ready", "reserved", "delayed", "buried", "tubes"),
    *("connections", "producers", "workers", "waiting", "job_bytes", "body_bytes"),
    *("binlog_files", "binlog_bytes", "binlog_live_bytes", "binlog_refusing", "binlog_full"),
)
"""Fields of bs_counters that the parent clears when a worker ends; others keep their values."""


class SharedMemory:
    """A mapping of the segment. `pointer` is the `bs_shared *` for the core."""

    def __init__(self, fd: int) -> None:
        """Map the segment; the caller still owns `fd`. Raises OSError."""
        self._map = mmap.mmap(fd, SHARED_BYTES, mmap.MAP_SHARED)
        self._buffer = ffi.from_buffer("char[]", self._map, require_writable=True)
        self.pointer: Any = ffi.cast("bs_shared *", self._buffer)

    @property
    def draining(self) -> bool:
        """Whether all workers refuse puts."""
        return bool(self.pointer.draining)

    @draining.setter
    def draining(self, refused: bool) -> None:
        self.pointer.draining = int(refused)

    def counters(self, worker: int) -> Any:
        """Return a view of one worker's `bs_counters`."""
        return self.pointer.worker[worker]

    def all_counters(self) -> list[Any]:
        return [self.counters(worker) for worker in range(self.pointer.workers)]

    @property
    def parent(self) -> Any:
        """The parent's `bs_counters`, for connections that no worker has yet.

        `total_connections` counts all accepted connections, `moved_out` those handed over.
        """
        return self.pointer.parent

    def tls_counters(self, process: int) -> Any:
        """Return a view of one TLS process's `bs_counters`, which count handshakes as connections.

        `moved_out` counts successful handshakes, `connections` the tunnels, and `waiting` the
        tunnels whose worker has closed its end.
        """
        return self.pointer.tls[process]

    def all_tls_counters(self) -> list[Any]:
        return [self.tls_counters(process) for process in range(self.pointer.tls_processes)]

    def open_connections(self) -> int:
        """Return how many connections that the parent accepted for several workers are open."""
        closed = sum(counters.closed_connections for counters in self.all_counters())
        return int(self.parent.total_connections - closed - self.parent.closed_connections)

    def is_refusing(self, worker: int) -> bool:
        """Return whether a worker refuses puts, because its folder has no space."""
        return bool(self.counters(worker).binlog_refusing)

    def reset_worker(self, worker: int, will_recover: bool) -> None:
        """Clear the counters of an ended worker.

        With `will_recover`, limits still count its jobs, because the next process recovers them.
        """
        counters = self.counters(worker)
        counters.pid = 0
        if will_recover:
            counters.kept_bytes = max(counters.kept_bytes, counters.job_bytes)
            counters.kept_tubes = max(counters.kept_tubes, counters.tubes)
        for gauge in GAUGES:
            setattr(counters, gauge, 0)
        counters.closed_connections += open_connections(counters)


def open_connections(counters: Any) -> int:
    arrived = int(counters.total_connections) + int(counters.moved_in)
    return arrived - int(counters.closed_connections) - int(counters.moved_out)


def create_segment() -> int:
    """Return the descriptor of a new, zeroed segment. Raises OSError."""
    fd = os.memfd_create("beanstalkd-py", os.MFD_CLOEXEC)
    os.ftruncate(fd, SHARED_BYTES)
    return fd
