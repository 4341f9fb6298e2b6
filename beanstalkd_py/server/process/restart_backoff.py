"""How long to wait before a process that has ended is started again, and whether it keeps ending.

Must not know which process it is.
"""

from __future__ import annotations

import time

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0
STABLE_AFTER_S = 60.0
REPEATED = 3
"""So many short lives in a row are no accident."""


class RestartBackoff:
    """Pauses that double with each failure, and begin anew after a good life. Seconds."""

    def __init__(
        self,
        first_s: float = FIRST_PAUSE_S,
        longest_s: float = LONGEST_PAUSE_S,
        stable_after_s: float = STABLE_AFTER_S,
    ) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._good_life_s = stable_after_s
        self._next_s = first_s
        self._short_lives = 0
        self._good_at_mono = 0.0

    @property
    def keeps_restarting(self) -> bool:
        """Whether there were several short lives in a row, and no good one since."""
        return self._short_lives >= REPEATED and time.monotonic() < self._good_at_mono

    def pause_after(self, lived_s: float) -> float:
        """The pause after a life of this length."""
        if lived_s >= self._good_life_s:
            self._next_s = self._first_s
            self._short_lives = 0
        self._short_lives += 1
        pause_s = self._next_s
        self._good_at_mono = time.monotonic() + pause_s + self._good_life_s
        self._next_s = min(2 * pause_s, self._longest_s)
        return pause_s
