"""The metrics of the history: how far the archiver is, what waits for it, and what got lost.

They are there if a history is kept. Must not know the archiver's process or the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

_PREFIX = "beanstalkd_history_"

_GAUGES = (
    ("up", "up", "1 if the archiver serves."),
    ("full", "full", "1 if there is no room in the history, so that finished jobs wait."),
    ("behind_bytes", "behind_bytes", "Bytes of the binlog that the archiver has not read yet."),
    (
        "waiting_bytes",
        "waiting_bytes",
        "Bytes of binlog files kept for the archiver only.",
    ),
    ("backlog_limit_bytes", "most_bytes", "--history-backlog."),
    ("store_bytes", "store_bytes", "Bytes of all files of the history."),
    ("open_jobs", "open_jobs", "Jobs that the archiver follows because they have not ended."),
)
_COUNTERS = (
    ("archived_jobs", "archived", "Jobs that have ended and are in the history."),
    ("archiver_restarts", "restarts", "Starts of the archiver after its first."),
    ("lost_files", "lost_files", "Binlog files removed unread because too many waited."),
    ("lost_bytes", "lost_bytes", "Bytes of those."),
    ("unreadable_places", "faults", "Places in binlogs that the archiver could not believe."),
    (
        "missing_bytes",
        "missing_bytes",
        "Bytes of the history's log that had been on disk and were missing when it was opened.",
    ),
    ("unknown_jobs", "orphans", "Jobs that have ended and of which nothing else was known."),
    ("bodies_left_out", "bodies_left_out", "Jobs archived without their bodies, for their size."),
)

Status = Callable[[], dict[str, Any]]
"""See ArchiverSupervisor.status."""


def history_metrics(status: Status) -> Iterator[Metric]:
    """All of them, one after the other."""
    said = status()
    said["up"] = said["state"] == "serving"
    said["full"] = bool(said["refused"])
    for name, key, text in _GAUGES:
        yield GaugeMetricFamily(_PREFIX + name, text, value=float(said[key]))
    for name, key, text in _COUNTERS:
        yield CounterMetricFamily(_PREFIX + name, text, value=said[key])
