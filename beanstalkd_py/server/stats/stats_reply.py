"""The reply to `stats`, summed over all workers from shared memory.

Keys, order and quoting are those of beanstalkd 1.13, because exporters parse the reply. The
core (csrc/workers/barrier.h) computes current-producers and current-workers, because a migrating
connection changes the counters of two processes one after the other.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from typing import Any

from beanstalkd_py import PROTOCOL_VERSION
from beanstalkd_py.core.connections import Roles
from beanstalkd_py.server.process.messages import ProcessConfig
from beanstalkd_py.server.process.proc_stats import TICKS_PER_S, process_usage
from beanstalkd_py.server.process.shared_memory import SharedMemory

# The order of the reply and of bs_verb in csrc/api/types.h.
COMMANDS = (
    *("put", "peek", "peek-ready", "peek-delayed", "peek-buried"),
    *("reserve", "reserve-with-timeout", "delete", "release", "use", "watch", "ignore"),
    *("bury", "kick", "touch", "stats", "stats-job", "stats-tube"),
    *("list-tubes", "list-tube-used", "list-tubes-watched", "pause-tube"),
)
JOB_STATES = ("urgent", "ready", "reserved", "delayed", "buried")
_TICK_US = 1_000_000 // TICKS_PER_S


class StatsReply:
    """Renders the reply. A reload may change `max_job_size`."""

    def __init__(self, config: ProcessConfig, shared: SharedMemory) -> None:
        self._config = config
        self._shared = shared
        self._system = os.uname()
        self.max_job_size = config.options.max_job_size

    def render(self, roles: Roles) -> bytes:
        lines = "".join(f"{key}: {value}\n" for key, value in self._items(roles))
        body = f"---\n{lines}".encode()
        return b"OK %d\r\n%b\r\n" % (len(body), body)

    def _items(self, roles: Roles) -> Iterator[tuple[str, object]]:
        counters = self._shared.all_counters()
        yield from _queue_items(counters)
        yield "max-job-size", self.max_job_size
        yield "current-tubes", _total(counters, "tubes")
        accepted, closed = connection_totals(counters, self._shared.parent)
        yield "current-connections", accepted - closed
        yield "current-producers", roles.producers
        yield "current-workers", roles.workers
        yield "current-waiting", _total(counters, "waiting")
        yield "total-connections", accepted
        yield from self._process_items(counters)
        yield from _binlog_items(counters)
        yield "binlog-max-size", self._config.options.file_size
        yield "draining", "true" if self._shared.draining else "false"
        yield "id", self._config.instance_id
        yield "hostname", f'"{self._system.nodename}"'
        yield "os", f'"{self._system.version}"'
        yield "platform", f'"{self._system.machine}"'

    def _process_items(self, counters: list[Any]) -> Iterator[tuple[str, object]]:
        processes = [*counters, *self._shared.all_tls_counters()]
        user_us, system_us = cpu_times_us(self._config.parent_pid, processes)
        yield "pid", self._config.parent_pid
        yield "version", f'"{PROTOCOL_VERSION}"'
        yield "rusage-utime", _seconds(user_us)
        yield "rusage-stime", _seconds(system_us)
        yield "uptime", int(time.monotonic() - self._config.started_mono)


def cpu_times_us(parent_pid: int, counters: list[Any]) -> tuple[int, int]:
    own = resource.getrusage(resource.RUSAGE_SELF)
    parent = process_usage(parent_pid)  # includes the processes that it has reaped
    pids = {parent_pid, *(one.pid for one in counters)} - {0, os.getpid()}
    others = [process_usage(pid) for pid in pids]
    user = parent.ended_user + sum(usage.user for usage in others)
    system = parent.ended_system + sum(usage.system for usage in others)
    user_us = round(own.ru_utime * 1e6) + user * _TICK_US
    return user_us, round(own.ru_stime * 1e6) + system * _TICK_US


def connection_totals(counters: list[Any], parent: Any) -> tuple[int, int]:
    """Return how many connections were accepted and how many of them are closed.

    A single worker counts its own connections. With several workers the parent counts each
    connection before the handover, so that none is missing or counted twice.
    """
    accepted = max(_total(counters, "total_connections"), int(parent.total_connections))
    return accepted, _total([*counters, parent], "closed_connections")


def _queue_items(counters: list[Any]) -> Iterator[tuple[str, object]]:
    for state in JOB_STATES:
        yield f"current-jobs-{state}", _total(counters, state)
    for index, name in enumerate(COMMANDS):
        yield f"cmd-{name}", sum(one.cmd[index] for one in counters)
    yield "job-timeouts", _total(counters, "job_timeouts")
    yield "total-jobs", _total(counters, "total_jobs")


def _binlog_items(counters: list[Any]) -> Iterator[tuple[str, object]]:
    # File numbers of several folders do not add up, so report the oldest and the newest.
    yield "binlog-oldest-index", min(one.binlog_oldest for one in counters)
    yield "binlog-current-index", max(one.binlog_current for one in counters)
    yield "binlog-records-migrated", _total(counters, "records_migrated")
    yield "binlog-records-written", _total(counters, "records_written")


def _total(counters: list[Any], field: str) -> int:
    return sum(getattr(one, field) for one in counters)


def _seconds(us: int) -> str:
    return f"{us // 1_000_000}.{us % 1_000_000:06d}"
