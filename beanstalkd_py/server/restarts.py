"""How long to wait before something that has ended is started again.

Knows numbers only.
"""

from __future__ import annotations

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0
GOOD_LIFE_S = 60.0


class Backoff:
    """Pauses that double with each failure, and begin anew after a good life. Seconds."""

    def __init__(
        self,
        first_s: float = FIRST_PAUSE_S,
        longest_s: float = LONGEST_PAUSE_S,
        good_life_s: float = GOOD_LIFE_S,
    ) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._good_life_s = good_life_s
        self._next_s = first_s

    def pause_after(self, lived_s: float) -> float:
        """The pause after a life of this length."""
        if lived_s >= self._good_life_s:
            self._next_s = self._first_s
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, self._longest_s)
        return pause_s
