"""So many jobs per second, evenly. `now` is given, in monotonic seconds."""

from __future__ import annotations

TICK_S = 0.01
"""Jobs of this time go together when they are many."""
SLACK_S = 0.1
"""Who is later than this does not catch up with the rest."""


class Pace:
    """`rate` jobs per second, None for as many as can be; at most `most` at once."""

    def __init__(self, rate: float | None, most: int) -> None:
        self._rate = rate
        self._due: float | None = None
        self.at_once = most if rate is None else max(1, min(most, int(rate * TICK_S)))

    def wait_s(self, now: float) -> float:
        """How long to wait before the next jobs may go."""
        return 0.0 if self._rate is None or self._due is None else max(0.0, self._due - now)

    def took(self, count: int, now: float) -> None:
        """So many have gone."""
        if self._rate is not None:
            due = now if self._due is None else max(self._due, now - SLACK_S)
            self._due = due + count / self._rate
