"""The metrics of a replicated server, most of them of the primary only."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from beanstalkd_py.server.metrics.families import counter, gauge
from beanstalkd_py.server.process.messages import ReplicatorStatus


def replication_metrics(status: ReplicatorStatus) -> Iterator[Metric]:
    text = "0 while the replicated log does not answer, and replies wait for it."
    yield gauge("replicated_log_up", text, not status.unavailable)
    text = "Time without an answer of the replicated log since this server's start."
    yield counter("replicated_log_unavailable_seconds", text, status.unavailable_s)
    is_primary = status.epoch > 0
    yield gauge("replication_primary", "1 for the primary, 0 for a standby.", is_primary)
    if not is_primary:
        return
    text = "For how long the oldest bytes have waited for the replicated log; 0 if none wait."
    yield gauge("replicated_log_wait_seconds", text, status.waiting_s)
    text = "Bytes that wait for the replicated log."
    yield gauge("replicated_log_wait_bytes", text, status.waiting_bytes)
    text = "Epoch of this primary; a failover raises it."
    yield gauge("replication_epoch", text, status.epoch)
    text = "How often a server has become the primary of this queue after the first one."
    yield counter("replication_failovers", text, status.failovers)
    yield gauge("standbys", "Running standbys.", status.standbys)
    text = "Messages that are not in the report of the last of the running standbys."
    yield gauge("standby_behind_messages", text, status.behind)
    text = "Bytes of the binlog that are not in the report of the last of the running standbys."
    yield gauge("standby_behind_bytes", text, status.behind_bytes)
    text = "Time between a standby's last report and when it had all messages; the longest one."
    yield gauge("standby_behind_seconds", text, status.behind_s)
