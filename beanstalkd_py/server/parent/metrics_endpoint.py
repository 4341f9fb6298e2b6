"""Assembles the metrics server, apart from loop.py because prometheus_client is slow to import."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.metrics_core import Metric

from beanstalkd_py.server.accept.listeners import Listener
from beanstalkd_py.server.archiver.archiver_supervisor import HistoryStatus
from beanstalkd_py.server.metrics.history_metrics import history_metrics
from beanstalkd_py.server.metrics.http_server import MetricsServer, Readiness
from beanstalkd_py.server.metrics.server_metrics import ServerMetrics
from beanstalkd_py.server.metrics.tube_metrics import TubeMetrics
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.parent.worker_supervisor import WorkerSupervisor
from beanstalkd_py.server.process.shared_memory import SharedMemory
from beanstalkd_py.server.stats.stats_reply import ServerInfo
from beanstalkd_py.server.stats.tube_stats import TubeStatsCache
from beanstalkd_py.server.stats.worker_stats import Component, WorkerStatus


def metrics_server(
    listener: Listener,
    info: ServerInfo,
    options: Callable[[], ServeOptions],
    shared: SharedMemory,
    workers: Sequence[WorkerSupervisor],
    connections_limit: int,
    readiness: Readiness,
    components: Callable[[], Sequence[Component]],
    history: Callable[[], HistoryStatus] | None,
) -> MetricsServer:
    """Return a server that owns the listener. `connections_limit` is the limit of one worker."""

    def statuses() -> list[WorkerStatus]:
        now_mono = time.monotonic()
        return [worker.status(now_mono) for worker in workers]

    server = ServerMetrics(info, options, connections_limit, shared, statuses, components)
    cache = TubeStatsCache([worker.tube_stats for worker in workers])
    tubes = TubeMetrics(cache, len(workers), options().metrics_tubes)

    def collect() -> Iterator[Metric]:
        yield from server.collect()
        if history is not None:
            yield from history_metrics(history())
        yield from tubes.collect()

    return MetricsServer(listener, collect, readiness)
