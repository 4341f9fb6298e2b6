"""Percentiles of durations, from a server's histograms, which count by powers of two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from beanstalkd_py.quantities import NS_PER_S

MEDIAN = 0.5
HIGH = 0.99

Counts = Sequence[int]
"""How many durations were at most 1, 2, 4, ... nanoseconds, and more than the limit before."""


class Durations(NamedTuple):
    """Percentiles in seconds of the time between two polls; None if nothing happened in it.

    `queue` is the time from when a job became ready until a client got it, `sync` that of a sync
    of the binlog.
    """

    queue_p50: float | None = None
    queue_p99: float | None = None
    sync_p50: float | None = None
    sync_p99: float | None = None


def durations_between(before: Mapping[str, Counts], now: Mapping[str, Counts]) -> Durations:
    """Compare two answers of the control socket to `durations`."""
    queue, sync = (_grown(before[name], now[name]) for name in ("queue", "sync"))
    return Durations(
        percentile(queue, MEDIAN),
        percentile(queue, HIGH),
        percentile(sync, MEDIAN),
        percentile(sync, HIGH),
    )


def _grown(before: Counts, now: Counts) -> Counts:
    if sum(now) < sum(before):
        return now  # the server began again after the last poll
    return [max(later - earlier, 0) for earlier, later in zip(before, now, strict=True)]


def percentile(counts: Counts, share: float) -> float | None:
    """Return the duration in seconds that this share of all is below.

    As Prometheus does, it assumes that durations are spread evenly between two limits.
    """
    wanted = share * sum(counts)
    if not wanted:
        return None
    below = 0
    for power, count in enumerate(counts):
        if below + count >= wanted:
            upper = float(2**power)
            lower = upper / 2 if power else 0.0
            return (lower + (upper - lower) * (wanted - below) / count) / NS_PER_S
        below += count
    raise AssertionError("unreachable")
