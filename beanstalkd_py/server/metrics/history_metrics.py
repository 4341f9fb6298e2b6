"""The metrics of the history: the archiver's progress, backlog and losses."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from beanstalkd_py.server.archiver.archiver_supervisor import HistoryStatus
from beanstalkd_py.server.metrics.families import counter, gauge

_GAUGES = (
    ("behind_bytes", "behind_bytes", "Bytes of the binlog that the archiver has not read yet."),
    ("waiting_bytes", "waiting_bytes", "Bytes of binlog files kept for the archiver only."),
    ("backlog_limit_bytes", "most_bytes", "--history-backlog."),
    ("store_bytes", "store_bytes", "Bytes of all files of the history."),
    ("open_jobs", "open_jobs", "Jobs that the archiver follows because they have not ended."),
)
_COUNTERS = (
    ("archived_jobs", "archived", "Jobs that have ended and are in the history."),
    ("archiver_restarts", "restarts", "Starts of the archiver after its first."),
    ("lost_files", "lost_files", "Binlog files removed unread at the limit of the backlog."),
    ("lost_bytes", "lost_bytes", "Bytes of binlog files removed unread."),
    ("unreadable_places", "faults", "Damaged places in binlogs that the archiver skipped."),
    (
        "missing_bytes",
        "missing_bytes",
        "Bytes of the history's log that had been synced and were missing when it was opened.",
    ),
    ("unknown_jobs", "orphans", "Jobs that have ended and whose put is unknown."),
    ("bodies_left_out", "bodies_left_out", "Jobs archived without their oversized bodies."),
)


def history_metrics(status: HistoryStatus) -> Iterator[Metric]:
    yield gauge("history_up", "1 if the archiver serves.", status.state == "serving")
    text = "1 if the history is full and finished jobs wait."
    yield gauge("history_full", text, bool(status.refused))
    for name, field, text in _GAUGES:
        yield gauge(f"history_{name}", text, getattr(status, field))
    for name, field, text in _COUNTERS:
        yield counter(f"history_{name}", text, getattr(status, field))
