"""The metrics of the server and its workers, from shared memory and /proc.

Names follow Prometheus's conventions: base units, `_total` for counters.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from prometheus_client.core import HistogramMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from beanstalkd_py import PROTOCOL_VERSION, __version__
from beanstalkd_py.quantities import NS_PER_S
from beanstalkd_py.server.metrics.families import Samples, counter, counters, gauge, gauges
from beanstalkd_py.server.process.proc_stats import process_usage
from beanstalkd_py.server.process.shared_memory import SharedMemory, open_connections
from beanstalkd_py.server.stats.stats_reply import COMMANDS, connection_totals, cpu_times_us
from beanstalkd_py.server.stats.worker_stats import Component

if TYPE_CHECKING:
    from beanstalkd_py.server.parent.start import ServerSetup
    from beanstalkd_py.server.parent.worker_supervisor import WorkerSupervisor

Buckets = list[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class BucketBounds:
    """Converts bs_histogram of csrc/api/types.h, which counts by powers of two, to buckets.

    The upper bounds are 2**first to 2**last, each 2**step times the one before. `per_unit` divides
    values: 1e9 converts nanoseconds to seconds.
    """

    first: int
    last: int
    step: int = 1
    per_unit: float = 1.0

    def read(self, histograms: Iterable[Any]) -> tuple[Buckets, float]:
        """Return the cumulative buckets and the sum of several bs_histograms."""
        total = 0.0
        counts = []
        for histogram in histograms:
            counts.append(list(histogram.count))
            total += histogram.sum
        below = list(accumulate(map(sum, zip(*counts, strict=True))))
        powers = range(self.first, self.last + 1, self.step)
        buckets = [(str(2**power / self.per_unit), float(below[power])) for power in powers]
        return [*buckets, ("+Inf", float(below[-1]))], total / self.per_unit


COMMAND_TIME = BucketBounds(13, 34, per_unit=NS_PER_S)
"""From 8 us to 17 s."""
SYNC_TIME = BucketBounds(14, 35, per_unit=NS_PER_S)
"""From 16 us to 34 s."""
SYNC_ENTRIES = BucketBounds(0, 16)
QUEUE_TIME = BucketBounds(20, 48, step=2, per_unit=NS_PER_S)
"""From 1 ms to 3 days."""

JOB_STATES = ("ready", "reserved", "delayed", "buried")
ROLES = {"producer": "producers", "worker": "workers", "waiting": "waiting"}

TIMED = (
    *(*COMMANDS, "reserve-job", "kick-job", "features", "list-jobs", "truncate", "wait"),
    *("reserve-abort", "reserve-batch", "with", "move", "quit"),
)
"""Commands in the order of bs_verb in csrc/api/types.h. `quit` has no reply, so no duration."""

REFUSED = (
    *("memory_limit", "binlog_full", "out_of_memory"),
    *("job_too_big", "expected_crlf", "bad_format", "draining", "worker_down"),
    *("tube_jobs", "tube_bytes", "log_overdue"),
)
"""Reasons for refused puts, in the order of bs_refused in csrc/api/types.h."""

POLICY_ACTIONS = (
    *("default_ttr", "max_delay", "buried", "deleted", "moved"),
    *("backoff", "max_reserved", "rate", "expired", "job_expired"),
    "duplicate",
)
"""Effects of tube policies other than refused puts, in the order of bs_policy_action there."""

# Metrics with a value per worker: name, field of bs_counters, help text.
_GAUGES = (
    ("urgent_jobs", "urgent", "Ready jobs with a priority below 1024."),
    ("tubes", "tubes", "Tubes that exist."),
    ("binlog_files", "binlog_files", "Files of the binlog that have entries."),
    ("binlog_oldest_index", "binlog_oldest", "Number of the oldest file of the binlog."),
    ("binlog_current_index", "binlog_current", "Number of the current file of the binlog."),
    ("job_memory_bytes", "job_bytes", "Memory of all jobs, as --max-memory counts it."),
    ("body_memory_bytes", "body_bytes", "Part of it in separate bodies: --body-memory."),
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
    ("bodies_read", "bodies_read", "Bodies read back from the binlog."),
    ("bodies_awaited", "bodies_awaited", "Times that a body in the binlog was needed."),
    ("bodies_unreadable", "bodies_unreadable", "Failed attempts to read a body back."),
    ("tubes_refused", "refused_tubes", "Commands refused for --max-tubes."),
    ("connections_moved_in", "moved_in", "Connections taken over from other workers."),
    ("connections_moved_out", "moved_out", "Connections handed to other workers."),
)
_HISTOGRAMS = (
    ("sync_duration_seconds", "sync_time", SYNC_TIME, "Duration of binlog syncs."),
    ("sync_entries", "sync_entries", SYNC_ENTRIES, "Entries per binlog sync."),
    (
        *("job_queue_duration_seconds", "in_queue", QUEUE_TIME),
        "Time from a job's becoming ready to its reservation, by the wall clock.",
    ),
)
MakeFamily = Callable[[str, str, Sequence[str], Samples], Metric]
"""Either `gauges` or `counters`."""

_COMMAND_TIME = (
    "Time from the arrival of a complete command until its reply can be sent, without the time that"
    " a reserve waits for a job."
)


class ServerMetrics:
    """Collects the metrics of one server.

    `connections_limit` is the limit of one worker.
    """

    def __init__(
        self,
        setup: ServerSetup,
        shared: SharedMemory,
        connections_limit: int,
        supervisors: Sequence[WorkerSupervisor],
        components: Callable[[], Sequence[Component]],
    ) -> None:
        self._setup = setup
        self._shared = shared
        self._connections_limit = connections_limit
        self._supervisors = supervisors
        self._components = components
        self._started = time.time() - (time.monotonic() - setup.started_mono)
        self._cpu = [_CpuTime() for _ in range(shared.pointer.workers)]
        self._tls_cpu = [_CpuTime() for _ in range(shared.pointer.tls_processes)]

    def collect(self) -> Iterator[Metric]:
        workers = self._shared.all_counters()
        yield from self._server(workers)
        yield from self._connections(workers)
        yield from self._limits(workers)
        yield from self._workers()
        yield from self._restarts()
        yield _labelled(gauges, "jobs", "Jobs by state.", "state", map(_jobs, workers))
        for name, field, text in _GAUGES:
            yield _per_worker(gauges, name, text, (getattr(one, field) for one in workers))
        for name, field, text in _COUNTERS:
            yield _per_worker(counters, name, text, (getattr(one, field) for one in workers))
        text = "Bytes in the files of the binlog: needed by live jobs, and removable by compaction."
        yield _labelled(gauges, "binlog_bytes", text, "state", map(_binlog_bytes, workers))
        refused = (dict(zip(REFUSED, one.refused_puts, strict=False)) for one in workers)
        yield _labelled(counters, "puts_refused", "Refused puts by reason.", "reason", refused)
        actions = (dict(zip(POLICY_ACTIONS, one.policy_actions, strict=True)) for one in workers)
        text = "Times that a tube policy changed what a client requested, or ended a job."
        yield _labelled(counters, "policy_actions", text, "action", actions)
        commands = (dict(zip(COMMANDS, one.cmd, strict=False)) for one in workers)
        yield _labelled(counters, "commands", "Commands of clients.", "command", commands)
        yield from _histograms(workers)

    def _server(self, workers: list[Any]) -> Iterator[Metric]:
        system = os.uname()
        build = {"version": __version__, "protocol": PROTOCOL_VERSION}
        yield InfoMetricFamily("beanstalkd_build", "The version that runs.", build)
        instance = {
            "id": self._setup.instance_id,
            "pid": str(os.getpid()),
            "hostname": system.nodename,
            "os": system.version,
            "platform": system.machine,
        }
        yield InfoMetricFamily("beanstalkd_instance", "This start of the server.", instance)
        yield gauge("start_time_seconds", "Start time of the server.", self._started)
        yield gauge("draining", "1 if puts are refused.", self._shared.draining)
        options = self._setup.options
        yield gauge("max_job_size_bytes", "Larger jobs are refused.", options.max_job_size)
        yield gauge("binlog_max_file_size_bytes", "Of a binlog file.", options.file_size)
        user_us, system_us = cpu_times_us(os.getpid(), [*workers, *self._shared.all_tls_counters()])
        samples = [(["user"], user_us / 1e6), (["system"], system_us / 1e6)]
        yield counters("cpu_seconds", "Processor time of all processes.", ["mode"], samples)

    def _connections(self, workers: list[Any]) -> Iterator[Metric]:
        accepted, closed = connection_totals(workers, self._shared.parent)
        yield gauge("connections", "Open connections.", accepted - closed)
        yield counter("connections_accepted", "Accepted connections.", accepted)
        silent = int(self._shared.parent.connections)
        text = "Open connections that have sent no command yet, and have no worker."
        yield gauge("silent_connections", text, silent)
        text = "How many connections one worker can have."
        yield gauge("worker_connections_limit", text, self._connections_limit)
        held = map(open_connections, workers)
        yield _per_worker(gauges, "worker_connections", "Open connections of a worker.", held)
        text = "Connections that have put a job, that have reserved one, and that wait for one."
        roles = ({role: getattr(one, ROLES[role]) for role in ROLES} for one in workers)
        yield _labelled(gauges, "clients", text, "role", roles)

    def _limits(self, workers: list[Any]) -> Iterator[Metric]:
        """Yield a metric for each limit that is set, and the refusals."""
        options, parent = self._setup.options, self._shared.parent
        for name, limit, text in (
            ("connections_limit", options.max_connections, "--max-connections."),
            ("job_memory_limit_bytes", options.max_memory, "--max-memory."),
            ("body_memory_limit_bytes", options.body_memory, "--body-memory."),
            ("tubes_limit", options.max_tubes, "--max-tubes."),
        ):
            if limit:
                yield gauge(name, text, limit)
        text = "Connections closed at once, for --max-connections or --allow."
        yield counter("connections_refused", text, parent.refused_connections)
        timed_out = sum(one.timed_out_connections for one in [*workers, parent])
        yield counter("connections_timed_out", "Connections closed at a timeout.", timed_out)
        if options.tls_listen is not None:
            yield from self._tls()

    def _tls(self) -> Iterator[Metric]:
        processes = self._shared.all_tls_counters()
        opened = sum(one.connections for one in processes)
        yield gauge("tls_connections", "Open connections with TLS.", opened)
        accepted = sum(one.total_connections for one in processes)
        yield counter("tls_connections_accepted", "Connections for TLS.", accepted)
        text = "Connections for TLS without a successful handshake."
        failed = sum(one.closed_connections for one in processes)
        yield counter("tls_connections_failed", text, failed)
        text = "Processor time of a TLS process."
        cpu = [
            time.total(process_usage(one.pid).cpu_s)
            for time, one in zip(self._tls_cpu, processes, strict=True)
        ]
        samples = [([str(index)], value) for index, value in enumerate(cpu)]
        yield counters("tls_cpu_seconds", text, ["process"], samples)

    def _workers(self) -> Iterator[Metric]:
        statuses = [one.status() for one in self._supervisors]
        usages = [status.usage() for status in statuses]
        up = [status.state == "serving" for status in statuses]
        yield _per_worker(gauges, "worker_up", "1 if the worker serves.", up)
        restarts = [status.restarts for status in statuses]
        yield _per_worker(counters, "worker_restarts", "Starts after its first.", restarts)
        text = "Memory of the worker's process."
        resident = [usage.resident_bytes for usage in usages]
        yield _per_worker(gauges, "worker_resident_memory_bytes", text, resident)
        cpu = [time.total(usage.cpu_s) for time, usage in zip(self._cpu, usages, strict=True)]
        yield _per_worker(counters, "worker_cpu_seconds", "Processor time of a worker.", cpu)

    def _restarts(self) -> Iterator[Metric]:
        components = self._components()
        text = "Starts of a process after its first: a worker, TLS or the archiver."
        restarts = [([one.name], one.restarts) for one in components]
        yield counters("component_restarts", text, ["component"], restarts)
        text = "1 if the process has ended several times in a row soon after its start."
        repeated = [([one.name], one.keeps_restarting) for one in components]
        yield gauges("component_keeps_restarting", text, ["component"], repeated)


class _CpuTime:
    """The processor time of all successive processes of a component, from samples."""

    def __init__(self) -> None:
        self._ended_s = 0.0
        self._last_s = 0.0

    def total(self, now_s: float) -> float:
        """Add a sample, the time of the current process; return the sum."""
        if now_s < self._last_s:
            self._ended_s += self._last_s
        self._last_s = now_s
        return self._ended_s + now_s


def _per_worker(make: MakeFamily, name: str, text: str, values: Iterable[float]) -> Metric:
    return make(name, text, ["worker"], (([str(n)], value) for n, value in enumerate(values)))


def _labelled(
    make: MakeFamily, name: str, text: str, label: str, values: Iterable[Mapping[str, float]]
) -> Metric:
    """Return a family with a second label; `values` has the values by that label per worker."""
    samples = (
        ([str(worker), label_value], value)
        for worker, of_worker in enumerate(values)
        for label_value, value in of_worker.items()
    )
    return make(name, text, ["worker", label], samples)


def _jobs(worker: Any) -> dict[str, int]:
    return {state: getattr(worker, state) for state in JOB_STATES}


def _binlog_bytes(worker: Any) -> dict[str, int]:
    live = min(worker.binlog_live_bytes, worker.binlog_bytes)
    return {"live": live, "dead": worker.binlog_bytes - live}


def _histograms(workers: list[Any]) -> Iterator[Metric]:
    for name, field, bounds, text in _HISTOGRAMS:
        family = HistogramMetricFamily(f"beanstalkd_{name}", text, labels=["worker"])
        for worker, one in enumerate(workers):
            family.add_metric([str(worker)], *bounds.read([getattr(one, field)]))
        yield family
    family = HistogramMetricFamily(
        "beanstalkd_command_duration_seconds", _COMMAND_TIME, labels=["command"]
    )
    for verb, command in enumerate(TIMED):
        buckets, total = COMMAND_TIME.read(one.latency[verb] for one in workers)
        if buckets[-1][1] > 0:  # unused commands would be most of all samples
            family.add_metric([command], buckets, total)
    yield family
