"""Builds the families of metrics that prometheus_client renders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

Samples = Iterable[tuple[Sequence[str], float]]
"""The values of the labels, and the value of the metric."""


def gauge(name: str, text: str, value: float) -> Metric:
    return gauges(name, text, (), [((), value)])


def counter(name: str, text: str, value: float) -> Metric:
    return counters(name, text, (), [((), value)])


def gauges(name: str, text: str, labels: Sequence[str], samples: Samples) -> Metric:
    family = GaugeMetricFamily(f"beanstalkd_{name}", text, labels=labels)
    for values, value in samples:
        family.add_metric(values, float(value))
    return family


def counters(name: str, text: str, labels: Sequence[str], samples: Samples) -> Metric:
    family = CounterMetricFamily(f"beanstalkd_{name}", text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family
