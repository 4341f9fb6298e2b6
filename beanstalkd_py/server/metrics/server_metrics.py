"""The metrics of the server and its workers, from shared memory and /proc.

Names follow Prometheus's conventions: base units, `_total` for counters.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
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
from beanstalkd_py.server.process.shared_memory import SharedMemory, open_connections
from beanstalkd_py.server.stats import histograms
from beanstalkd_py.server.stats.stats_reply import (
    COMMANDS,
    ServerInfo,
    connection_totals,
    cpu_times_us,
)
from beanstalkd_py.server.stats.worker_stats import Component, WorkerStatus

JOB_STATES = ("ready", "reserved", "delayed", "buried")
ROLES = {"producer": "producers", "worker": "workers", "waiting": "waiting"}

TIMED = (*COMMANDS, "reserve-job", "kick-job", "quit")
"""In the order of bs_verb in csrc/api/types.h. A quit has no reply, so no duration."""

REFUSED = (
    *("memory_limit", "binlog_full", "out_of_memory"),
    *("job_too_big", "expected_crlf", "bad_format", "draining", "worker_down"),
)
"""Reasons for refused puts, in the order of bs_refused in csrc/api/types.h."""

# Metrics with a value per worker: name, field of bs_counters, help text.
_GAUGES = (
    ("urgent_jobs", "urgent", "Ready jobs with a priority below 1024."),
    ("tubes", "tubes", "Tubes that exist."),
    ("binlog_files", "binlog_files", "Files of the binlog that have entries."),
    ("binlog_oldest_index", "binlog_oldest", "Number of the oldest file of the binlog."),
    ("binlog_current_index", "binlog_current", "Number of the current file of the binlog."),
    ("job_memory_bytes", "job_bytes", "Memory of all jobs, as --max-memory counts it."),
    ("binlog_full", "binlog_full", "1 if the binlog has no space on disk and puts are refused."),
)
_COUNTERS = (
    ("jobs_put", "total_jobs", "Jobs that were put."),
    ("job_timeouts", "job_timeouts", "Jobs that were reserved for longer than their TTR."),
    ("binlog_records_written", "records_written", "Entries written to the binlog."),
    ("binlog_records_migrated", "records_migrated", "Entries written by compaction."),
    ("binlog_syncs", "syncs", "Completed syncs of the binlog."),
    ("history_notes_left_out", "deferred_dropped", "Deferred entries dropped for lack of space."),
    ("mesh_received_bytes", "peer_bytes_in", "Bytes received from other workers."),
    ("mesh_sent_bytes", "peer_bytes_out", "Bytes sent to other workers."),
    ("tubes_refused", "refused_tubes", "Commands refused for --max-tubes."),
    ("connections_moved_in", "moved_in", "Connections taken over from other workers."),
    ("connections_moved_out", "moved_out", "Connections handed to other workers."),
)
_HISTOGRAMS = (
    ("sync_duration_seconds", "sync_time", histograms.SYNC_TIME, "Duration of binlog syncs."),
    ("sync_entries", "sync_entries", histograms.SYNC_ENTRIES, "Entries per binlog sync."),
    (
        *("job_queue_duration_seconds", "in_queue", histograms.QUEUE_TIME),
        "Time from a job's becoming ready to its reservation, by the wall clock.",
    ),
)
_COMMAND_TIME = (
    "Time from the arrival of a complete command until its reply can be sent, without the time that"
    " a reserve waits for a job."
)


class ServerMetrics:
    """Collects the metrics of one server.

    `options` returns the options in force, `statuses` the workers in order. `connections_limit`
    is the limit of one worker.
    """

    def __init__(
        self,
        info: ServerInfo,
        options: Callable[[], ServeOptions],
        connections_limit: int,
        shared: SharedMemory,
        statuses: Callable[[], Sequence[WorkerStatus]],
        components: Callable[[], Sequence[Component]],
    ) -> None:
        self._info = info
        self._options = options
        self._connections_limit = connections_limit
        self._shared = shared
        self._statuses = statuses
        self._components = components
        self._started = time.time() - (time.monotonic() - info.started_mono)
        self._cpu = [_CpuTime() for _ in range(shared.workers)]

    def collect(self) -> Iterator[Metric]:
        counters = self._shared.all_counters()
        yield from self._server(counters)
        yield from self._connections(counters)
        yield from self._limits(counters)
        yield from self._workers()
        yield from self._restarts()
        yield _jobs(counters)
        for name, field, text in _GAUGES:
            yield _per_worker(GaugeMetricFamily, name, field, text, counters)
        for name, field, text in _COUNTERS:
            yield _per_worker(CounterMetricFamily, name, field, text, counters)
        yield _binlog_bytes(counters)
        yield _per_worker_and_label(
            *("puts_refused", "Refused puts by reason.", "reason", REFUSED),
            [one.refused_puts for one in counters],
        )
        yield _per_worker_and_label(
            *("commands", "Commands of clients.", "command", COMMANDS),
            [one.cmd for one in counters],
        )
        yield from _histograms(counters)

    def _server(self, counters: list[Any]) -> Iterator[Metric]:
        info, system = self._info, os.uname()
        build = {"version": __version__, "protocol": PROTOCOL_VERSION}
        yield InfoMetricFamily(_named("build"), "The version that runs.", build)
        instance = {
            "id": info.instance_id,
            "pid": str(os.getpid()),
            "hostname": system.nodename,
            "os": system.version,
            "platform": system.machine,
        }
        yield InfoMetricFamily(_named("instance"), "This start of the server.", instance)
        yield _gauge("start_time_seconds", "Start time of the server.", self._started)
        yield _gauge("draining", "1 if puts are refused.", self._shared.draining)
        max_job_size = self._options().max_job_size
        yield _gauge("max_job_size_bytes", "Larger jobs are refused.", max_job_size)
        yield _gauge("binlog_max_file_size_bytes", "Of a binlog file.", info.file_size)
        cpu = CounterMetricFamily(
            _named("cpu_seconds"), "Processor time of all processes.", labels=["mode"]
        )
        user_us, system_us = cpu_times_us(os.getpid(), [*counters, self._shared.tls])
        cpu.add_metric(["user"], user_us / 1e6)
        cpu.add_metric(["system"], system_us / 1e6)
        yield cpu

    def _connections(self, counters: list[Any]) -> Iterator[Metric]:
        accepted, closed = connection_totals(counters, self._shared.parent)
        yield _gauge("connections", "Open connections.", accepted - closed)
        yield _counter("connections_accepted", "Accepted connections.", accepted)
        silent = int(self._shared.parent.connections)
        text = "Open connections that have sent no command yet, and have no worker."
        yield _gauge("silent_connections", text, silent)
        text = "How many connections one worker can have."
        yield _gauge("worker_connections_limit", text, self._connections_limit)
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
        """Yield a metric for each limit that is set, and the refusals."""
        options, parent = self._options(), self._shared.parent
        for name, limit, text in (
            ("connections_limit", options.max_connections, "--max-connections."),
            ("job_memory_limit_bytes", options.max_memory, "--max-memory."),
            ("tubes_limit", options.max_tubes, "--max-tubes."),
        ):
            if limit:
                yield _gauge(name, text, limit)
        text = "Connections closed at once, for --max-connections or --allow."
        yield _counter("connections_refused", text, parent.refused_connections)
        timed_out = sum(one.timed_out_connections for one in [*counters, parent])
        yield _counter("connections_timed_out", "Connections closed at a timeout.", timed_out)
        if options.tls_listen is not None:
            tls = self._shared.tls
            yield _gauge("tls_connections", "Open connections with TLS.", tls.connections)
            yield _counter(
                "tls_connections_accepted", "Connections for TLS.", tls.total_connections
            )
            text = "Connections for TLS without a successful handshake."
            yield _counter("tls_connections_failed", text, tls.closed_connections)

    def _workers(self) -> Iterator[Metric]:
        def per_worker(kind: type[Any], name: str, text: str) -> Any:
            return kind(_named(name), text, labels=["worker"])

        up = per_worker(GaugeMetricFamily, "worker_up", "1 if the worker serves.")
        restarts = per_worker(CounterMetricFamily, "worker_restarts", "Starts after its first.")
        memory = per_worker(
            GaugeMetricFamily, "worker_resident_memory_bytes", "Memory of the worker's process."
        )
        cpu = per_worker(CounterMetricFamily, "worker_cpu_seconds", "Processor time of a worker.")
        for status in self._statuses():
            label = [str(status.worker)]
            usage = status.usage()
            up.add_metric(label, float(status.state == "serving"))
            restarts.add_metric(label, status.restarts)
            memory.add_metric(label, usage.resident_bytes)
            cpu.add_metric(label, self._cpu[status.worker].total(usage.cpu_s))
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


class _CpuTime:
    """Processor time of one worker over all its processes, as far as it was sampled."""

    def __init__(self) -> None:
        self._ended_s = 0.0
        self._last_s = 0.0

    def total(self, now_s: float) -> float:
        """Return the total, given the time of the current process."""
        if now_s < self._last_s:
            self._ended_s += self._last_s
        self._last_s = now_s
        return self._ended_s + now_s


def _named(name: str) -> str:
    return f"beanstalkd_{name}"


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(_named(name), text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(_named(name), text, value=value)


def _per_worker(kind: type[Any], name: str, field: str, text: str, counters: list[Any]) -> Metric:
    family: Any = kind(_named(name), text, labels=["worker"])
    for worker, one in enumerate(counters):
        family.add_metric([str(worker)], getattr(one, field))
    return family  # type: ignore[no-any-return]


def _per_worker_and_label(
    name: str, text: str, label: str, values: Sequence[str], counts: list[Any]
) -> Metric:
    """Return a counter; `counts` has an array per worker, in the order of `values`."""
    family = CounterMetricFamily(_named(name), text, labels=["worker", label])
    for worker, of_worker in enumerate(counts):
        for index, value in enumerate(values):
            family.add_metric([str(worker), value], of_worker[index])
    return family


def _jobs(counters: list[Any]) -> Metric:
    family = GaugeMetricFamily(_named("jobs"), "Jobs by state.", labels=["worker", "state"])
    for worker, one in enumerate(counters):
        for state in JOB_STATES:
            family.add_metric([str(worker), state], getattr(one, state))
    return family


def _binlog_bytes(counters: list[Any]) -> Metric:
    family = GaugeMetricFamily(
        _named("binlog_bytes"),
        "Bytes in the files of the binlog: needed by live jobs, and removable by compaction.",
        labels=["worker", "state"],
    )
    for worker, one in enumerate(counters):
        live = min(one.binlog_live_bytes, one.binlog_bytes)
        family.add_metric([str(worker), "live"], live)
        family.add_metric([str(worker), "dead"], one.binlog_bytes - live)
    return family


def _histograms(counters: list[Any]) -> Iterator[Metric]:
    for name, field, bounds, text in _HISTOGRAMS:
        family = HistogramMetricFamily(_named(name), text, labels=["worker"])
        for worker, one in enumerate(counters):
            family.add_metric([str(worker)], *bounds.read([getattr(one, field)]))
        yield family
    family = HistogramMetricFamily(
        _named("command_duration_seconds"), _COMMAND_TIME, labels=["command"]
    )
    for verb, command in enumerate(TIMED):
        buckets, total = histograms.COMMAND_TIME.read(one.latency[verb] for one in counters)
        if buckets[-1][1] > 0:  # most servers never see most commands, and these are most samples
            family.add_metric([command], buckets, total)
    yield family
