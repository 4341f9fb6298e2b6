"""The state, counters and resource use of each worker, from shared memory and /proc."""

from __future__ import annotations

from dataclasses import dataclass

from beanstalkd_py.server.process.proc_stats import Usage, process_usage
from beanstalkd_py.server.process.shared_memory import SharedMemory, open_connections
from beanstalkd_py.server.stats.stats_reply import JOB_STATES


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One worker, which has been in its `state` for `since_s` seconds.

    `state` is starting (recovery), serving, waiting (for a restart) or stopping. `pid` is 0 without
    a process.
    """

    worker: int
    state: str
    since_s: float
    pid: int
    restarts: int

    def usage(self) -> Usage:
        return process_usage(self.pid) if self.pid else Usage()


@dataclass(frozen=True, slots=True)
class Component:
    """A supervised process: a worker, TLS or the archiver."""

    name: str
    restarts: int
    keeps_restarting: bool


def worker_row(status: WorkerStatus, shared: SharedMemory) -> dict[str, int | float | str]:
    """Return a worker's row for `workers --json`."""
    counters = shared.counters(status.worker)
    usage = status.usage()
    return {
        "worker": status.worker,
        "state": status.state,
        "since-s": round(status.since_s, 3),
        "pid": status.pid,
        "restarts": status.restarts,
        "cpu-s": round(usage.cpu_s, 2),
        "memory-bytes": usage.resident_bytes,
        "tubes": int(counters.tubes),
        "connections": open_connections(counters),
        "moved-in": int(counters.moved_in),
        "moved-out": int(counters.moved_out),
        "mesh-in-bytes": int(counters.peer_bytes_in),
        "mesh-out-bytes": int(counters.peer_bytes_out),
        **{f"jobs-{state}": int(getattr(counters, state)) for state in JOB_STATES},
        "binlog-oldest-index": int(counters.binlog_oldest),
        "binlog-current-index": int(counters.binlog_current),
    }
