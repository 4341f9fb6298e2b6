"""What the server consists of, for its administrator: the workers, and what each costs and has.

Reads the shared counters and /proc, and asks nobody. Must not know who wants it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from beanstalkd_py.server.process.proc_stats import TICKS_PER_S, Usage, process_usage
from beanstalkd_py.server.process.shared_memory import SharedMemory, open_connections
from beanstalkd_py.server.stats.stats_reply import JOB_STATES


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One worker's place in the server.

    `state` is starting (it reads its binlog), serving, waiting (for its next start) or stopping;
    `since_s` is seconds in it; `pid` is 0 while there is no process.
    """

    worker: int
    state: str
    since_s: float
    pid: int
    restarts: int


@dataclass(frozen=True, slots=True)
class Component:
    """A process of the server that is started again when it ends: a worker, TLS or the archiver."""

    name: str
    restarts: int
    keeps_restarting: bool


def worker_row(place: WorkerStatus, shared: SharedMemory) -> dict[str, Any]:
    """A place and what is in it: seconds, bytes, and numbers of tubes, connections and jobs."""
    counters = shared.counters(place.worker)
    usage = process_usage(place.pid) if place.pid else Usage()
    return {
        "worker": place.worker,
        "state": place.state,
        "since-s": round(place.since_s, 3),
        "pid": place.pid,
        "restarts": place.restarts,
        "cpu-s": round((usage.user + usage.system) / TICKS_PER_S, 2),
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
