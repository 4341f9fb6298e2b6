"""The metrics of tubes, for as many of them as may have some.

Half of the places go to the tubes with the most jobs, the others to those with the most traffic so
far, so that neither a backlog nor a busy empty tube is overlooked. The jobs of the rest are
together under no name, so that a sum over all series is right. Must not know how metrics travel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from beanstalkd_py.control.tube_stats import Row
from beanstalkd_py.server.metrics.server_metrics import JOB_STATES
from beanstalkd_py.server.stats.tube_stats_cache import TubeStatsCache, TubeStatsSnapshot

ROLES = ("using", "watching", "waiting")
NO_TUBE = ""
"""The label of what belongs to all tubes without metrics of their own."""


@dataclass(frozen=True, slots=True)
class _Number:
    """A metric with a value for each tube: `key` of its row."""

    name: str
    key: str
    text: str


_GAUGES = (
    _Number("urgent_jobs", "urgent", "Ready jobs of a tube of a priority below 1024."),
    _Number("pause_seconds", "pause", "For how long the tube was paused last; 0: it is not."),
    _Number("pause_left_seconds", "pause-time-left", "How much of its pause is left."),
)
_COUNTERS = (
    _Number("jobs_put", "total", "Jobs that were put into the tube."),
    _Number("jobs_reserved", "reserves", "Reserves that a job of the tube was given to."),
    _Number("jobs_deleted", "cmd-delete", "Jobs of the tube that were deleted."),
    _Number("pauses", "cmd-pause-tube", "How often the tube was paused."),
)


class TubeMetrics:
    """At most `most` tubes have metrics of their own."""

    def __init__(self, survey: TubeStatsCache, workers: int, most: int) -> None:
        self._survey = survey
        self._workers = workers
        self._most = most

    def collect(self) -> Iterator[Metric]:
        """All of them. Waits for workers to answer."""
        if self._most == 0:
            return
        survey = self._survey.take()
        shown, rest = choose(survey.rows, self._most)
        yield GaugeMetricFamily(
            "beanstalkd_tubes_not_shown",
            "Tubes without metrics of their own, because there are more than --metrics-tubes.",
            value=len(rest),
        )
        yield self._answered(survey)
        yield _jobs(shown, rest)
        for one in _GAUGES:
            yield _filled(
                GaugeMetricFamily(_named(one.name), one.text, labels=["tube"]), one, shown
            )
        for one in _COUNTERS:
            family = CounterMetricFamily(_named(one.name), one.text, labels=["tube"])
            yield _filled(family, one, shown)
        yield _connections(shown)
        yield _ages(shown)

    def _answered(self, survey: TubeStatsSnapshot) -> Metric:
        family = GaugeMetricFamily(
            "beanstalkd_worker_tubes_known",
            "1 if the worker has told of its tubes in time; else their metrics are missing.",
            labels=["worker"],
        )
        for worker in range(self._workers):
            family.add_metric([str(worker)], float(worker not in survey.missing))
        return family


def choose(rows: Sequence[Row], most: int) -> tuple[list[Row], list[Row]]:
    """The tubes that have metrics of their own, by name, and the others."""
    if len(rows) <= most:
        return sorted(rows, key=_name), []
    # Among equals those that come first: the same ones the next time.
    full = nlargest((most + 1) // 2, rows, key=_jobs_and_traffic)
    rest = _without(rows, full)
    busy = nlargest(most // 2, rest, key=_traffic)
    return sorted(full + busy, key=_name), _without(rest, busy)


def _without(rows: Iterable[Row], some: Iterable[Row]) -> list[Row]:
    left_out = {id(row) for row in some}
    return [row for row in rows if id(row) not in left_out]


def _name(row: Row) -> str:
    return str(row["name"])


def _jobs_and_traffic(row: Row) -> tuple[int, int]:
    return row["ready"] + row["reserved"] + row["delayed"] + row["buried"], _traffic(row)


def _traffic(row: Row) -> int:
    return int(row["puts"] + row["reserves"] + row["deletes"])


def _named(name: str) -> str:
    return f"beanstalkd_tube_{name}"


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily, of: _Number, rows: Iterable[Row]
) -> Metric:
    for row in rows:
        family.add_metric([row["name"]], row[of.key])
    return family


def _jobs(shown: Iterable[Row], rest: Sequence[Row]) -> Metric:
    family = GaugeMetricFamily(
        _named("jobs"), "Jobs of a tube; without a tube, of all others.", labels=["tube", "state"]
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
        "Connections that use the tube, that watch it, and that wait for a job of it.",
        labels=["tube", "role"],
    )
    for row in shown:
        for role in ROLES:
            family.add_metric([row["name"], role], row[role])
    return family


def _ages(shown: Iterable[Row]) -> Metric:
    family = GaugeMetricFamily(
        _named("oldest_ready_job_age_seconds"),
        "For how long the job that is reserved next could have been; 0: none is ready.",
        labels=["tube"],
    )
    for row in shown:
        family.add_metric([row["name"]], row["oldest-ready-age-s"] or 0)
    return family
