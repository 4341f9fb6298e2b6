"""A timer wheel with eight buckets.

An item expires at its limit at the earliest, and an eighth of the limit later at the latest.
"""

from __future__ import annotations

from collections import deque

BUCKETS = 8


class TimerWheel:
    """Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._buckets: deque[tuple[float, set[int]]] = deque()
        self._limit_s = 0.0

    def __len__(self) -> int:
        return sum(len(items) for _, items in self._buckets)

    def __contains__(self, item: int) -> bool:
        return any(item in items for _, items in self._buckets)

    def all(self) -> set[int]:
        return set().union(*(items for _, items in self._buckets))

    def set_limit(self, limit_s: float, now: float) -> None:
        """Restart all timers with a new limit; 0: items never expire."""
        self._limit_s = limit_s
        items = self.all()
        self._buckets.clear()
        if items:
            self._buckets.append((now, items))

    def add(self, item: int, now: float) -> None:
        """Start the timer of an item that is not in the wheel."""
        width_s = self._limit_s / BUCKETS
        if not self._buckets or (self._limit_s and now >= self._buckets[-1][0] + width_s):
            self._buckets.append((now, set()))
        self._buckets[-1][1].add(item)

    def discard(self, item: int) -> bool:
        """Remove an item; return whether it was in the wheel."""
        for _, items in self._buckets:
            if item in items:
                items.remove(item)
                return True
        return False

    def take_expired(self, now: float) -> set[int]:
        expired: set[int] = set()
        # The youngest item of a bucket was added at the bucket's end.
        oldest = now - self._limit_s * (1 + 1 / BUCKETS)
        while self._limit_s and self._buckets and self._buckets[0][0] <= oldest:
            expired |= self._buckets.popleft()[1]
        return expired
