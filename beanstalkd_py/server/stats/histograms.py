"""The histograms that workers keep in shared memory, as Prometheus has them.

A worker counts by powers of two (bs_histogram in csrc/api/types.h); here the counts become
cumulative, and the bounds are those that somebody wants to see. Must not know what is measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

Buckets = list[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class BucketBounds:
    """Upper bounds 2**first to 2**last of what is counted, each 2**step times the one before.

    `per_unit` of them are one here: 1e9 makes seconds of nanoseconds.
    """

    first: int
    last: int
    step: int = 1
    per_unit: float = 1.0

    def read(self, histograms: Iterable[Any]) -> tuple[Buckets, float]:
        """The buckets of several bs_histograms together, and the sum of what was counted."""
        counts, total = self._sums(histograms)
        below = list(accumulate(counts))
        shown = range(self.first, self.last + 1, self.step)
        buckets = [(str(2**power / self.per_unit), float(below[power])) for power in shown]
        return [*buckets, ("+Inf", float(below[-1]))], total / self.per_unit

    def _sums(self, histograms: Iterable[Any]) -> tuple[list[int], float]:
        total = 0.0
        columns = []
        for one in histograms:
            columns.append(list(one.count))
            total += one.sum
        return [sum(column) for column in zip(*columns, strict=True)], total


NS_PER_S = 1e9
COMMAND_TIME = BucketBounds(13, 34, per_unit=NS_PER_S)
"""8 us to 17 s."""
SYNC_TIME = BucketBounds(14, 35, per_unit=NS_PER_S)
"""16 us to 34 s."""
SYNC_ENTRIES = BucketBounds(0, 16)
QUEUE_TIME = BucketBounds(20, 48, step=2, per_unit=NS_PER_S)
"""1 ms to 3 days."""
