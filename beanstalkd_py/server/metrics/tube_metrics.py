"""The metrics of tubes, for up to --metrics-tubes of them.

Half of these tubes are those with the most jobs, the others those with the most traffic, so that
backlogs and busy empty tubes both have metrics. The jobs of all other tubes have an empty label, so
that the sum over all series is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest

from prometheus_client.metrics_core import Metric

from beanstalkd_py.control.tube_stats import Row
from beanstalkd_py.server.metrics.families import Samples, counters, gauge, gauges
from beanstalkd_py.server.metrics.server_metrics import JOB_STATES
from beanstalkd_py.server.stats.tube_stats import TubeStatsSnapshot

ROLES = ("using", "watching", "waiting")
NO_TUBE = ""
"""The label of all tubes without metrics of their own."""

# Metric name, key of the row, help text.
_GAUGES = (
    ("urgent_jobs", "urgent", "Ready jobs of a tube with a priority below 1024."),
    ("pause_seconds", "pause", "Duration of the tube's current pause; 0: not paused."),
    ("pause_left_seconds", "pause-time-left", "Rest of the tube's pause."),
)
_COUNTERS = (
    ("jobs_put", "total", "Jobs that were put into the tube."),
    ("jobs_reserved", "reserves", "Reserves that got a job of the tube."),
    ("jobs_deleted", "cmd-delete", "Jobs of the tube that were deleted."),
    ("pauses", "cmd-pause-tube", "How often the tube was paused."),
)


def tube_metrics(snapshot: TubeStatsSnapshot, workers: int, limit: int) -> Iterator[Metric]:
    """Yield the metrics; at most `limit` tubes have metrics of their own."""
    chosen, rest = choose(snapshot.rows, limit)
    yield gauge(
        "tubes_not_shown",
        "Tubes without metrics of their own, because there are more than --metrics-tubes.",
        len(rest),
    )
    yield gauges(
        "worker_tubes_known",
        "1 if the worker has reported its tubes in time; else their metrics are missing.",
        ["worker"],
        [([str(n)], n not in snapshot.missing) for n in range(workers)],
    )
    jobs = _by_key(chosen, JOB_STATES)
    if rest:
        jobs += [([NO_TUBE, state], sum(row[state] for row in rest)) for state in JOB_STATES]
    text = "Jobs of a tube; with an empty label, of all other tubes."
    yield gauges("tube_jobs", text, ["tube", "state"], jobs)
    for name, key, text in _GAUGES:
        yield gauges(f"tube_{name}", text, ["tube"], _values(chosen, key))
    for name, key, text in _COUNTERS:
        yield counters(f"tube_{name}", text, ["tube"], _values(chosen, key))
    text = "Connections that use the tube, watch it, and wait for its jobs."
    yield gauges("tube_connections", text, ["tube", "role"], _by_key(chosen, ROLES))
    text = "How long the job that is reserved next has been available; 0: none is ready."
    ages = _values(chosen, "oldest-ready-age-s")
    yield gauges("tube_oldest_ready_job_age_seconds", text, ["tube"], ages)


def _values(rows: Iterable[Row], key: str) -> Samples:
    return (([row["name"]], row[key] or 0) for row in rows)


def _by_key(rows: Iterable[Row], keys: Iterable[str]) -> list[tuple[list[str], float]]:
    return [([row["name"], key], row[key]) for row in rows for key in keys]


def choose(rows: Sequence[Row], limit: int) -> tuple[list[Row], list[Row]]:
    """Return the tubes with metrics of their own, ordered by name, and the others."""
    if len(rows) <= limit:
        return sorted(rows, key=_name), []
    # nlargest keeps the order of equal tubes, so each scrape chooses the same tubes.
    full = nlargest((limit + 1) // 2, rows, key=_jobs_and_traffic)
    rest = _without(rows, full)
    busy = nlargest(limit // 2, rest, key=_traffic)
    return sorted(full + busy, key=_name), _without(rest, busy)


def _without(rows: Iterable[Row], others: Iterable[Row]) -> list[Row]:
    excluded = {id(row) for row in others}
    return [row for row in rows if id(row) not in excluded]


def _name(row: Row) -> str:
    return str(row["name"])


def _jobs_and_traffic(row: Row) -> tuple[int, int]:
    return row["ready"] + row["reserved"] + row["delayed"] + row["buried"], _traffic(row)


def _traffic(row: Row) -> int:
    return int(row["puts"] + row["reserves"] + row["deletes"])
