"""The metrics of the server and its workers: which there are, what they are called, what they say.

Reads shared counters and /proc and asks nobody, so it costs the workers nothing. Names are for
Prometheus: base units, `_total` for what only grows. Must not know how metrics travel.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric

from beanstalkd_py import PROTOCOL_VERSION, __version__
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.process.proc_stats import TICKS_PER_S, process_usage
from beanstalkd_py.server.process.shared_memory import SharedMemory, open_connections
from beanstalkd_py.server.stats import histograms
from beanstalkd_py.server.stats.histograms import BucketBounds
from beanstalkd_py.server.stats.stats_reply import COMMANDS, ServerInfo, connections, cpu_times_us
from beanstalkd_py.server.stats.worker_stats import Component, WorkerStatus

JOB_STATES = ("ready", "reserved", "delayed", "buried")
ROLES = {"producer": "producers", "worker": "workers", "waiting": "waiting"}
"""Connections that have put, that have reserved, and that wait in a reserve."""

TIMED = (
    *("put", "peek", "peek-ready", "peek-delayed", "peek-buried"),
    *("reserve-with-timeout", "reserve-job", "reserve"),
    *("delete", "release", "bury", "kick", "kick-job", "touch"),
    *("stats-job", "stats-tube", "stats", "use", "watch", "ignore"),
    *("list-tubes-watched", "list-tube-used", "list-tubes", "quit", "pause-tube"),
)
"""In the order of bs_verb in csrc/protocol/parser.h. A quit has no reply and takes no time."""


REFUSED = (
    *("memory_limit", "binlog_full", "out_of_memory"),
    *("job_too_big", "expected_crlf", "bad_format", "draining", "worker_down"),
)
"""Why a put was refused, in the order of bs_refused in csrc/api/types.h."""


@dataclass(frozen=True, slots=True)
class _Field:
    """A metric with a value for each worker: a field of its bs_counters."""

    name: str
    field: str
    text: str


_GAUGES = (
    _Field("urgent_jobs", "urgent", "Ready jobs of a priority below 1024."),
    _Field("tubes", "tubes", "Tubes that exist."),
    _Field("binlog_files", "binlog_files", "Files of the binlog that have entries."),
    _Field("binlog_oldest_index", "binlog_oldest", "Number of the oldest file of the binlog."),
    _Field("binlog_current_index", "binlog_current", "Number of the file that is written to."),
    _Field("job_memory_bytes", "job_bytes", "Memory of all jobs, as --max-memory counts it."),
    _Field("binlog_full", "binlog_full", "1 if there is no room on disk and puts are refused."),
)
_COUNTERS = (
    _Field("jobs_put", "total_jobs", "Jobs that were put."),
    _Field("job_timeouts", "job_timeouts", "Jobs that were reserved for longer than their TTR."),
    _Field("binlog_records_written", "records_written", "Entries written to the binlog."),
    _Field("binlog_records_migrated", "records_migrated", "Of these, by compaction."),
    _Field("binlog_syncs", "syncs", "Syncs of the binlog that have ended."),
    _Field("history_notes_left_out", "deferred_dropped", "Events left out for want of room."),
    _Field("mesh_received_bytes", "peer_bytes_in", "Bytes received from other workers."),
    _Field("mesh_sent_bytes", "peer_bytes_out", "Bytes sent to other workers."),
    _Field("tubes_refused", "refused_tubes", "Commands refused for --max-tubes."),
    _Field("connections_moved_in", "moved_in", "Connections taken over from other workers."),
    _Field("connections_moved_out", "moved_out", "Connections handed to other workers."),
)


@dataclass(frozen=True, slots=True)
class _Histogram:
    name: str
    field: str
    bounds: BucketBounds
    text: str


_HISTOGRAMS = (
    _Histogram(
        *("sync_duration_seconds", "sync_time", histograms.SYNC_TIME),
        "How long a sync of the binlog took.",
    ),
    _Histogram(
        *("sync_entries", "sync_entries", histograms.SYNC_ENTRIES),
        "Entries that one sync brought to disk.",
    ),
    _Histogram(
        *("job_queue_duration_seconds", "in_queue", histograms.QUEUE_TIME),
        "From when a job was ready last until a client got it, by the wall clock.",
    ),
)
_COMMAND_TIME = (
    "From when all of a command was there until its reply could leave; a reserve's wait for a job"
    " does not count."
)


class ServerMetrics:
    """`places` tells what each worker's place is like now, in their order.

    `options` tells those in force, some of which may change; `connections_limit` is that of a
    worker.
    """

    def __init__(
        self,
        facts: ServerInfo,
        options: Callable[[], ServeOptions],
        connections_limit: int,
        shared: SharedMemory,
        places: Callable[[], Sequence[WorkerStatus]],
        components: Callable[[], Sequence[Component]],
    ) -> None:
        self._facts = facts
        self._options = options
        self._connections_limit = connections_limit
        self._shared = shared
        self._places = places
        self._components = components
        self._started = time.time() - (time.monotonic() - facts.started_mono)
        self._cpu = [_Cpu() for _ in range(shared.workers)]

    def collect(self) -> Iterator[Metric]:
        """All of them, one after the other."""
        counters = [self._shared.counters(index) for index in range(self._shared.workers)]
        yield from self._server(counters)
        yield from self._connections(counters)
        yield from self._limits(counters)
        yield from self._workers()
        yield from self._restarts()
        yield from _jobs(counters)
        for one in _GAUGES:
            yield _of_workers(GaugeMetricFamily, one, counters)
        for one in _COUNTERS:
            yield _of_workers(CounterMetricFamily, one, counters)
        yield _binlog_bytes(counters)
        yield _puts_refused(counters)
        yield _commands(counters)
        yield from _histograms(counters)

    def _server(self, counters: list[Any]) -> Iterator[Metric]:
        facts, system = self._facts, os.uname()
        build = {"version": __version__, "protocol": PROTOCOL_VERSION}
        yield InfoMetricFamily(_named("build"), "The version that runs.", build)
        instance = {
            "id": facts.instance_id,
            "pid": str(os.getpid()),
            "hostname": system.nodename,
            "os": system.version,
            "platform": system.machine,
        }
        yield InfoMetricFamily(_named("instance"), "This start of the server.", instance)
        yield _single("start_time_seconds", "When the server was started.", self._started)
        yield _single("draining", "1 if puts are refused.", self._shared.draining)
        yield _single(
            "max_job_size_bytes", "Larger jobs are refused.", self._options().max_job_size
        )
        yield _single("binlog_max_file_size_bytes", "Of a binlog file.", facts.file_size)
        cpu = CounterMetricFamily(
            _named("cpu_seconds"), "Processor time of all processes.", labels=["mode"]
        )
        user_us, system_us = cpu_times_us(os.getpid(), [*counters, self._shared.tls])
        cpu.add_metric(["user"], user_us / 1e6)
        cpu.add_metric(["system"], system_us / 1e6)
        yield cpu

    def _connections(self, counters: list[Any]) -> Iterator[Metric]:
        accepted, closed = connections(counters, self._shared.parent)
        yield _single("connections", "Connections that are open.", accepted - closed)
        yield CounterMetricFamily(
            _named("connections_accepted"), "Connections that there have been.", value=accepted
        )
        silent = int(self._shared.parent.connections)
        text = "Open connections that have said nothing yet, and are with no worker."
        yield _single("silent_connections", text, silent)
        text = "How many connections one worker can have."
        yield _single("worker_connections_limit", text, self._connections_limit)
        held = GaugeMetricFamily(
            _named("worker_connections"), "Open connections of a worker.", labels=["worker"]
        )
        roles = GaugeMetricFamily(
            _named("clients"),
            "Connections that have put a job, that have reserved one, and that wait for one.",
            labels=["worker", "role"],
        )
        for worker, one in enumerate(counters):
            held.add_metric([str(worker)], open_connections(one))
            for role, field in ROLES.items():
                roles.add_metric([str(worker), role], getattr(one, field))
        yield held
        yield roles

    def _limits(self, counters: list[Any]) -> Iterator[Metric]:
        """What there is no limit of has no metric for it."""
        options, parent = self._options(), self._shared.parent
        for name, limit, text in (
            ("connections_limit", options.max_connections, "--max-connections."),
            ("job_memory_limit_bytes", options.max_memory, "--max-memory."),
            ("tubes_limit", options.max_tubes, "--max-tubes."),
        ):
            if limit:
                yield _single(name, text, limit)
        yield CounterMetricFamily(
            _named("connections_refused"),
            "Connections closed at once, for --max-connections or --allow.",
            value=parent.refused_connections,
        )
        yield CounterMetricFamily(
            _named("connections_timed_out"),
            "Connections closed for what their clients did not do in time.",
            value=sum(one.timed_out_connections for one in [*counters, parent]),
        )
        if options.tls_listen is None:
            return
        tls = self._shared.tls
        yield _single("tls_connections", "Open connections with TLS.", tls.connections)
        for name, value, text in (
            ("tls_connections_accepted", tls.total_connections, "Connections for TLS."),
            ("tls_connections_failed", tls.closed_connections, "Of these, without a handshake."),
        ):
            yield CounterMetricFamily(_named(name), text, value=value)

    def _workers(self) -> Iterator[Metric]:
        def of_worker(kind: type[Any], name: str, text: str) -> Any:
            return kind(_named(name), text, labels=["worker"])

        up = of_worker(GaugeMetricFamily, "worker_up", "1 if the worker serves.")
        restarts = of_worker(CounterMetricFamily, "worker_restarts", "Starts after its first.")
        memory = of_worker(
            GaugeMetricFamily, "worker_resident_memory_bytes", "Memory of the worker's process."
        )
        cpu = of_worker(CounterMetricFamily, "worker_cpu_seconds", "Processor time of a worker.")
        for place in self._places():
            label = [str(place.worker)]
            usage = process_usage(place.pid) if place.pid else None
            up.add_metric(label, float(place.state == "serving"))
            restarts.add_metric(label, place.restarts)
            memory.add_metric(label, usage.resident_bytes if usage else 0)
            now_s = (usage.user + usage.system) / TICKS_PER_S if usage else 0.0
            cpu.add_metric(label, self._cpu[place.worker].seen(now_s))
        yield from (up, restarts, memory, cpu)

    def _restarts(self) -> Iterator[Metric]:
        restarts = CounterMetricFamily(
            _named("component_restarts"),
            "Starts of a process after its first: a worker, TLS or the archiver.",
            labels=["component"],
        )
        repeated = GaugeMetricFamily(
            _named("component_keeps_restarting"),
            "1 if the process has ended several times in a row soon after its start.",
            labels=["component"],
        )
        for one in self._components():
            restarts.add_metric([one.name], one.restarts)
            repeated.add_metric([one.name], float(one.keeps_restarting))
        yield from (restarts, repeated)


class _Cpu:
    """Processor time of one place over all its processes, as far as it was seen. Seconds."""

    def __init__(self) -> None:
        self._before_s = 0.0
        self._last_s = 0.0

    def seen(self, now_s: float) -> float:
        """What it is in all, when that of the present process is this."""
        if now_s < self._last_s:
            self._before_s += self._last_s
        self._last_s = now_s
        return self._before_s + now_s


def _named(name: str) -> str:
    return f"beanstalkd_{name}"


def _single(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(_named(name), text, value=value)


def _of_workers(kind: type[Any], of: _Field, counters: list[Any]) -> Metric:
    family: Metric = kind(_named(of.name), of.text, labels=["worker"])
    for worker, one in enumerate(counters):
        family.add_metric([str(worker)], getattr(one, of.field))  # type: ignore[attr-defined]
    return family


def _jobs(counters: list[Any]) -> Iterator[Metric]:
    jobs = GaugeMetricFamily(_named("jobs"), "Jobs that there are.", labels=["worker", "state"])
    for worker, one in enumerate(counters):
        for state in JOB_STATES:
            jobs.add_metric([str(worker), state], getattr(one, state))
    yield jobs


def _binlog_bytes(counters: list[Any]) -> Metric:
    family = GaugeMetricFamily(
        _named("binlog_bytes"),
        "Bytes in the files of the binlog: what live jobs need, and what they do not.",
        labels=["worker", "state"],
    )
    for worker, one in enumerate(counters):
        live = min(one.binlog_live_bytes, one.binlog_bytes)
        family.add_metric([str(worker), "live"], live)
        family.add_metric([str(worker), "dead"], one.binlog_bytes - live)
    return family


def _puts_refused(counters: list[Any]) -> Metric:
    counts = [one.refused_puts for one in counters]
    return _by_worker(
        "puts_refused", "Puts that were refused, by reason.", "reason", REFUSED, counts
    )


def _commands(counters: list[Any]) -> Metric:
    counts = [one.cmd for one in counters]
    return _by_worker("commands", "Commands of clients.", "command", COMMANDS, counts)


def _by_worker(name: str, help_text: str, label: str, values: Sequence[str], counts: Any) -> Metric:
    """A counter for each worker and value of a label; `counts` has an array for each worker."""
    family = CounterMetricFamily(_named(name), help_text, labels=["worker", label])
    for worker, of_worker in enumerate(counts):
        for index, value in enumerate(values):
            family.add_metric([str(worker), value], of_worker[index])
    return family


def _histograms(counters: list[Any]) -> Iterator[Metric]:
    for of in _HISTOGRAMS:
        family = HistogramMetricFamily(_named(of.name), of.text, labels=["worker"])
        for worker, one in enumerate(counters):
            family.add_metric([str(worker)], *of.bounds.read([getattr(one, of.field)]))
        yield family
    family = HistogramMetricFamily(
        _named("command_duration_seconds"), _COMMAND_TIME, labels=["command"]
    )
    for verb, command in enumerate(TIMED):
        buckets, total = histograms.COMMAND_TIME.read(one.latency[verb] for one in counters)
        if buckets[-1][1] > 0:  # most servers never see most commands, and this is the bulk
            family.add_metric([command], buckets, total)
    yield family
