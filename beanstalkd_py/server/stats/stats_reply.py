"""The reply to `stats`: what all workers count, and what the server as a whole is.

Reads counters from shared memory. A connection that moves changes two of them one after the other,
so the core counts producers and workers (csrc/workers/barrier.h). Keys, order and quoting are
beanstalkd 1.13's: exporters read them by name. Must not know sessions or how the bytes travel.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from beanstalkd_py import PROTOCOL_VERSION
from beanstalkd_py.core.connections import Roles
from beanstalkd_py.server.process.proc_stats import TICKS_PER_S, process_usage
from beanstalkd_py.server.process.shared_memory import SharedMemory

# In the order of the reply, which is also the order of BS_CMD_ in csrc/api/types.h.
COMMANDS = (
    "put",
    "peek",
    "peek-ready",
    "peek-delayed",
    "peek-buried",
    "reserve",
    "reserve-with-timeout",
    "delete",
    "release",
    "use",
    "watch",
    "ignore",
    "bury",
    "kick",
    "touch",
    "stats",
    "stats-job",
    "stats-tube",
    "list-tubes",
    "list-tube-used",
    "list-tubes-watched",
    "pause-tube",
)

JOB_STATES = ("urgent", "ready", "reserved", "delayed", "buried")
_TICK_US = 1_000_000 // TICKS_PER_S


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What holds for one start of the server.

    `started_mono` is seconds of the monotonic clock, the sizes are bytes.
    """

    parent_pid: int
    instance_id: str
    started_mono: float
    max_job_size: int
    file_size: int


class StatsReply:
    """Renders the reply. Cheap enough to be asked every second by every exporter."""

    def __init__(self, facts: ServerInfo, shared: SharedMemory) -> None:
        self._facts = facts
        self._shared = shared
        self._system = os.uname()
        self.max_job_size = facts.max_job_size
        """Bytes; may change while the server runs."""

    def reply(self, roles: Roles) -> bytes:
        """The whole reply, from OK to the last CR LF."""
        lines = "".join(f"{key}: {value}\n" for key, value in self._items(roles))
        body = f"---\n{lines}".encode()
        return b"OK %d\r\n%b\r\n" % (len(body), body)

    def _items(self, roles: Roles) -> Iterator[tuple[str, object]]:
        counters = [self._shared.counters(i) for i in range(self._shared.workers)]
        yield from _queue_items(counters)
        yield "max-job-size", self.max_job_size
        yield "current-tubes", _total(counters, "tubes")
        accepted, closed = connections(counters, self._shared.parent)
        yield "current-connections", accepted - closed
        yield "current-producers", roles.producers
        yield "current-workers", roles.workers
        yield "current-waiting", _total(counters, "waiting")
        yield "total-connections", accepted
        yield from self._process_items(counters)
        yield from _binlog_items(counters)
        yield "binlog-max-size", self._facts.file_size
        yield "draining", "true" if self._shared.draining else "false"
        yield "id", self._facts.instance_id
        yield "hostname", f'"{self._system.nodename}"'
        yield "os", f'"{self._system.version}"'
        yield "platform", f'"{self._system.machine}"'

    def _process_items(self, counters: list[Any]) -> Iterator[tuple[str, object]]:
        user_us, system_us = cpu_times_us(self._facts.parent_pid, [*counters, self._shared.tls])
        yield "pid", self._facts.parent_pid
        yield "version", f'"{PROTOCOL_VERSION}"'
        yield "rusage-utime", _seconds(user_us)
        yield "rusage-stime", _seconds(system_us)
        yield "uptime", int(time.monotonic() - self._facts.started_mono)


def cpu_times_us(parent_pid: int, counters: list[Any]) -> tuple[int, int]:
    """User and system time of all processes of the server, microseconds."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    # Workers that have ended are the parent's ended children.
    ended = process_usage(parent_pid)
    pids = {parent_pid, *(one.pid for one in counters)} - {0, os.getpid()}
    others = [process_usage(pid) for pid in pids]
    user = ended.ended_user + sum(one.user for one in others)
    system = ended.ended_system + sum(one.system for one in others)
    return round(own.ru_utime * 1e6) + user * _TICK_US, round(
        own.ru_stime * 1e6
    ) + system * _TICK_US


def connections(counters: list[Any], parent: Any) -> tuple[int, int]:
    """How many connections there have been, each once, and how many of them are closed.

    With one worker it alone counts them. With several the parent has counted each before a worker
    gets it, so that none is missing or seen twice while it is on its way.
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
    # Numbers of files do not add up over folders: the oldest and the newest of all are what is
    # asked.
    yield "binlog-oldest-index", min(one.binlog_oldest for one in counters)
    yield "binlog-current-index", max(one.binlog_current for one in counters)
    yield "binlog-records-migrated", _total(counters, "records_migrated")
    yield "binlog-records-written", _total(counters, "records_written")


def _total(counters: list[Any], field: str) -> int:
    return sum(getattr(one, field) for one in counters)


def _seconds(us: int) -> str:
    return f"{us // 1_000_000}.{us % 1_000_000:06d}"
