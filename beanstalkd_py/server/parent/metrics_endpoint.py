"""What --metrics serves, put together: the server's metrics, the tubes', and how ready it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.metrics_core import Metric

from beanstalkd_py.server.accept.listeners import Listener
from beanstalkd_py.server.metrics.history_metrics import Status, history_metrics
from beanstalkd_py.server.metrics.http_server import MetricsServer, Readiness
from beanstalkd_py.server.metrics.server_metrics import ServerMetrics
from beanstalkd_py.server.metrics.tube_metrics import TubeMetrics
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.parent.reload import Reloader
from beanstalkd_py.server.parent.worker_supervisor import WorkerSupervisor
from beanstalkd_py.server.process.shared_memory import SharedMemory
from beanstalkd_py.server.stats.stats_reply import ServerInfo
from beanstalkd_py.server.stats.tube_stats_cache import TubeStatsCache
from beanstalkd_py.server.stats.worker_stats import Component, WorkerStatus


def metrics_server(
    listener: Listener,
    facts: ServerInfo,
    reloader: Reloader,
    shared: SharedMemory,
    keepers: Sequence[WorkerSupervisor],
    connections_limit: int,
    readiness: Readiness,
    components: Callable[[], Sequence[Component]],
    history: Status | None,
) -> MetricsServer:
    """A server on this socket, which is its own from now on.

    `connections_limit` is a worker's; `components` lists every process that is started again when
    it ends; `history` tells of the archiver, None: there is none.
    """

    def places() -> list[WorkerStatus]:
        now_mono = time.monotonic()
        return [
            WorkerStatus(one.index, one.state, now_mono - one.since_mono, one.pid, one.restarts)
            for one in keepers
        ]

    def options() -> ServeOptions:
        return reloader.options

    of_server = ServerMetrics(facts, options, connections_limit, shared, places, components)
    survey = TubeStatsCache([one.index for one in keepers], lambda worker: keepers[worker].ask)
    of_tubes = TubeMetrics(survey, len(keepers), reloader.options.metrics_tubes)

    def collect() -> Iterator[Metric]:
        yield from of_server.collect()
        if history is not None:
            yield from history_metrics(history)
        yield from of_tubes.collect()

    return MetricsServer(listener, collect, readiness)
