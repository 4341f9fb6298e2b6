"""The metrics of tubes, for up to --metrics-tubes of them.

Half of these tubes are those with the most jobs, the others those with the most traffic, so that
backlogs and busy empty tubes both show up. The jobs of all other tubes have an empty label, so that
a sum over all series is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nlargest
from operator import itemgetter

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from beanstalkd_py.control.tube_stats import Row
from beanstalkd_py.server.metrics.server_metrics import JOB_STATES
from beanstalkd_py.server.stats.tube_stats import TubeStatsCache, TubeStatsSnapshot

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


class TubeMetrics:
    """At most `most` tubes have metrics of their own."""

    def __init__(self, cache: TubeStatsCache, workers: int, most: int) -> None:
        self._cache = cache
        self._workers = workers
        self._most = most

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, after the workers have answered."""
        if self._most == 0:
            return
        snapshot = self._cache.get()
        shown, rest = choose(snapshot.rows, self._most)
        yield GaugeMetricFamily(
            "beanstalkd_tubes_not_shown",
            "Tubes without metrics of their own, because there are more than --metrics-tubes.",
            value=len(rest),
        )
        yield self._answered(snapshot)
        yield _jobs(shown, rest)
        for name, key, text in _GAUGES:
            yield _family(GaugeMetricFamily, name, text, shown, itemgetter(key))
        for name, key, text in _COUNTERS:
            yield _family(CounterMetricFamily, name, text, shown, itemgetter(key))
        yield _connections(shown)
        yield _family(
            GaugeMetricFamily,
            "oldest_ready_job_age_seconds",
            "How long the job that is reserved next has been available; 0: none is ready.",
            shown,
            lambda row: row["oldest-ready-age-s"] or 0,
        )

    def _answered(self, snapshot: TubeStatsSnapshot) -> Metric:
        family = GaugeMetricFamily(
            "beanstalkd_worker_tubes_known",
            "1 if the worker has reported its tubes in time; else their metrics are missing.",
            labels=["worker"],
        )
        for worker in range(self._workers):
            family.add_metric([str(worker)], float(worker not in snapshot.missing))
        return family


def choose(rows: Sequence[Row], most: int) -> tuple[list[Row], list[Row]]:
    """Return the tubes with metrics of their own, ordered by name, and the others."""
    if len(rows) <= most:
        return sorted(rows, key=_name), []
    # nlargest keeps the order of equal tubes, so the same ones are chosen each time.
    full = nlargest((most + 1) // 2, rows, key=_jobs_and_traffic)
    rest = _without(rows, full)
    busy = nlargest(most // 2, rest, key=_traffic)
    return sorted(full + busy, key=_name), _without(rest, busy)


def _without(rows: Iterable[Row], some: Iterable[Row]) -> list[Row]:
    excluded = {id(row) for row in some}
    return [row for row in rows if id(row) not in excluded]


def _name(row: Row) -> str:
    return str(row["name"])


def _jobs_and_traffic(row: Row) -> tuple[int, int]:
    return row["ready"] + row["reserved"] + row["delayed"] + row["buried"], _traffic(row)


def _traffic(row: Row) -> int:
    return int(row["puts"] + row["reserves"] + row["deletes"])


def _named(name: str) -> str:
    return f"beanstalkd_tube_{name}"


def _family(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
    name: str,
    text: str,
    rows: Iterable[Row],
    value: Callable[[Row], float],
) -> Metric:
    family = kind(_named(name), text, labels=["tube"])
    for row in rows:
        family.add_metric([row["name"]], value(row))
    return family


def _jobs(shown: Iterable[Row], rest: Sequence[Row]) -> Metric:
    family = GaugeMetricFamily(
        _named("jobs"),
        "Jobs of a tube; with an empty label, of all other tubes.",
        labels=["tube", "state"],
    )
    for row in shown:
        for state in JOB_STATES:
            family.add_metric([row["name"], state], row[state])
    for state in JOB_STATES if rest else ():
        family.add_metric([NO_TUBE, state], sum(row[state] for row in rest))
    return family


def _connections(shown: Iterable[Row]) -> Metric:
    family = GaugeMetricFamily(
        _named("connections"),
        "Connections that use the tube, watch it, and wait for its jobs.",
        labels=["tube", "role"],
    )
    for row in shown:
        for role in ROLES:
            family.add_metric([row["name"], role], row[role])
    return family
