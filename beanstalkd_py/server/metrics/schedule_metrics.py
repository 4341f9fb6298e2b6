"""The metrics of schedules: puts, failures, and the times of ticks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from beanstalkd_py.server.metrics.families import counters, gauges
from beanstalkd_py.server.schedules.schedule_state import ScheduleStatus

LABELS = ("schedule",)


def schedule_metrics(statuses: Sequence[ScheduleStatus]) -> Iterator[Metric]:
    def labelled(field: str) -> Iterator[tuple[Sequence[str], float]]:
        return (([one.schedule.name], getattr(one, field)) for one in statuses)

    yield counters("schedule_puts", "Jobs that a schedule put.", LABELS, labelled("puts"))
    text = "Failed attempts of a schedule to put a job."
    yield counters("schedule_errors", text, LABELS, labelled("errors"))
    text = "1 if the last attempt failed and is repeated."
    failing = (([one.schedule.name], bool(one.error)) for one in statuses)
    yield gauges("schedule_failing", text, LABELS, failing)
    text = "The last tick whose job was put; 0 if none was."
    yield gauges("schedule_last_tick_timestamp_seconds", text, LABELS, labelled("last_put"))
    text = "The next tick of a schedule."
    yield gauges("schedule_next_tick_timestamp_seconds", text, LABELS, labelled("next_tick"))
