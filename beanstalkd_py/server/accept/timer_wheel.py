"""Things by how long they have been here, in a few sets and not with a time for each.

A set has the things of one span of time, an eighth of what the limit is; so no thing leaves early
and none more than that span late. Must not know what the things are.
"""

from __future__ import annotations

from collections import deque

SPANS = 8


class TimerWheel:
    """Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._sets: deque[tuple[float, set[int]]] = deque()
        self._limit_s = 0.0

    def __len__(self) -> int:
        return sum(len(things) for _, things in self._sets)

    def __contains__(self, thing: int) -> bool:
        return any(thing in things for _, things in self._sets)

    def all(self) -> set[int]:
        """Every thing."""
        return set().union(*(things for _, things in self._sets))

    def limit(self, limit_s: float, now: float) -> None:
        """How old a thing may become, from now on; 0: as old as it likes."""
        self._limit_s = limit_s
        things = self.all()
        self._sets.clear()
        if things:
            self._sets.append((now, things))

    def add(self, thing: int, now: float) -> None:
        """A thing that is not here is new."""
        span_s = self._limit_s / SPANS
        if not self._sets or (self._limit_s and now >= self._sets[-1][0] + span_s):
            self._sets.append((now, set()))
        self._sets[-1][1].add(thing)

    def discard(self, thing: int) -> bool:
        """Whether it was here."""
        for _, things in self._sets:
            if thing in things:
                things.remove(thing)
                return True
        return False

    def take_old(self, now: float) -> set[int]:
        """Removes those that are too old."""
        old: set[int] = set()
        # What was added last to a set has the age of its end.
        oldest = now - self._limit_s * (1 + 1 / SPANS)
        while self._limit_s and self._sets and self._sets[0][0] <= oldest:
            old |= self._sets.popleft()[1]
        return old
