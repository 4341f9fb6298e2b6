"""The metrics of a replicated server, which serves them while it is the primary."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from beanstalkd_py.server.metrics.families import gauge
from beanstalkd_py.server.process.messages import ReplicatorStatus


def replication_metrics(status: ReplicatorStatus) -> Iterator[Metric]:
    text = "0 while the replicated log does not answer, and replies wait for it."
    yield gauge("replicated_log_up", text, not status.unavailable)
