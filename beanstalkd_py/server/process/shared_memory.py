"""The memory that parent and workers share: bs_shared of csrc/api/types.h in an anonymous file.

Everyone maps the same pages, so reading a counter costs nothing and asks nobody. Who writes what
is said in types.h: a worker its own counters, the parent the drain flag and the counters of workers
that have ended, all of them the job-id counter by atomic operations in C.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

from beanstalkd_py.core._core import ffi, lib
from beanstalkd_py.core.shared_memory import BinlogPosition, durable_position

SHARED_BYTES = ffi.sizeof("bs_shared")
MAX_WORKERS: int = lib.BS_MAX_WORKERS
COMMANDS_COUNTED: int = lib.BS_CMD_COUNTED

GAUGES = (
    *("urgent", "ready", "reserved", "delayed", "buried", "tubes"),
    *("connections", "producers", "workers", "waiting", "job_bytes"),
    *("binlog_files", "binlog_bytes", "binlog_live_bytes", "binlog_refusing", "binlog_full"),
)
"""What a worker has now, and no more when it has ended; the other counters only grow, or tell, as
the safe place of its binlog, what is so without it."""


class SharedMemory:
    """A mapping of the segment. `pointer` is the `bs_shared *` for the core."""

    def __init__(self, fd: int) -> None:
        """Maps the segment behind `fd`, which stays the caller's. Raises OSError."""
        self._map = mmap.mmap(fd, SHARED_BYTES, mmap.MAP_SHARED)
        self._buffer = ffi.from_buffer("char[]", self._map, require_writable=True)
        self.pointer: Any = ffi.cast("bs_shared *", self._buffer)

    @property
    def draining(self) -> bool:
        """Whether puts are refused."""
        return bool(self.pointer.draining)

    @draining.setter
    def draining(self, refused: bool) -> None:
        """For every worker, from now on."""
        self.pointer.draining = int(refused)

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return int(self.pointer.workers)

    @workers.setter
    def workers(self, count: int) -> None:
        self.pointer.workers = count

    def counters(self, worker: int) -> Any:
        """The `bs_counters` of one worker, a view: what it shows changes."""
        return self.pointer.worker[worker]

    def durable_position(self, worker: int) -> BinlogPosition | None:
        """Up to where its binlog is safe on disk: see core.durable_position."""
        return durable_position(self.counters(worker))

    @property
    def parent(self) -> Any:
        """The `bs_counters` of the parent: the connections that are with no worker yet.

        There `total_connections` are all it has accepted, and those handed over `moved_out`.
        """
        return self.pointer.parent

    @property
    def tls(self) -> Any:
        """The `bs_counters` of the process that speaks TLS.

        Its handshakes are its connections; the parent, which takes back those that succeed, counts
        them as `moved_out`. `connections` are those it has in its hands after that, and `waiting`
        those of them that workers have closed already.
        """
        return self.pointer.tls

    def connections_of_parent(self) -> int:
        """Those that the parent has accepted for several workers, and nobody has closed yet."""
        closed = sum(self.counters(i).closed_connections for i in range(self.workers))
        return int(self.parent.total_connections - closed - self.parent.closed_connections)

    def settle(self, worker: int, comes_back: bool) -> None:
        """Makes the counters of a worker that has ended say so: it has nothing open any more.

        `comes_back`: its jobs do, with the next one, so limits count them on.
        """
        counters = self.counters(worker)
        counters.pid = 0
        if comes_back:
            counters.kept_bytes = max(counters.kept_bytes, counters.job_bytes)
            counters.kept_tubes = max(counters.kept_tubes, counters.tubes)
        for gauge in GAUGES:
            setattr(counters, gauge, 0)
        counters.closed_connections += open_connections(counters)


def open_connections(counters: Any) -> int:
    """How many connections a `bs_counters` says are open."""
    arrived = int(counters.total_connections) + int(counters.moved_in)
    return arrived - int(counters.closed_connections) - int(counters.moved_out)


def create_segment() -> int:
    """A new segment of zeros; its descriptor. Raises OSError."""
    fd = os.memfd_create("beanstalkd-py", os.MFD_CLOEXEC)
    os.ftruncate(fd, SHARED_BYTES)
    return fd
