"""Converts the histograms of shared memory (bs_histogram in csrc/api/types.h) for Prometheus.

A worker counts by powers of two; Prometheus wants cumulative counts and fewer bounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

Buckets = list[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class BucketBounds:
    """Upper bounds 2**first to 2**last, each 2**step times the one before.

    `per_unit` converts units: 1e9 for nanoseconds to seconds.
    """

    first: int
    last: int
    step: int = 1
    per_unit: float = 1.0

    def read(self, histograms: Iterable[Any]) -> tuple[Buckets, float]:
        """Return the cumulative buckets and the sum of several bs_histograms."""
        total = 0.0
        columns = []
        for one in histograms:
            columns.append(list(one.count))
            total += one.sum
        below = list(accumulate(sum(column) for column in zip(*columns, strict=True)))
        shown = range(self.first, self.last + 1, self.step)
        buckets = [(str(2**power / self.per_unit), float(below[power])) for power in shown]
        return [*buckets, ("+Inf", float(below[-1]))], total / self.per_unit


NS_PER_S = 1e9
COMMAND_TIME = BucketBounds(13, 34, per_unit=NS_PER_S)
"""8 us to 17 s."""
SYNC_TIME = BucketBounds(14, 35, per_unit=NS_PER_S)
"""16 us to 34 s."""
SYNC_ENTRIES = BucketBounds(0, 16)
QUEUE_TIME = BucketBounds(20, 48, step=2, per_unit=NS_PER_S)
"""1 ms to 3 days."""
