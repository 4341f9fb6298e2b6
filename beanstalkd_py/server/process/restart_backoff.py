"""The delay before a process that ended is started again."""

from __future__ import annotations

import time

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0
STABLE_AFTER_S = 60.0
REPEATED = 3
"""The number of early exits in a row after which the process counts as restarting repeatedly."""


class RestartBackoff:
    """Delays that double with each exit; a process that ran for `stable_after_s` resets them."""

    def __init__(
        self,
        first_s: float = FIRST_PAUSE_S,
        longest_s: float = LONGEST_PAUSE_S,
        stable_after_s: float = STABLE_AFTER_S,
    ) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._stable_after_s = stable_after_s
        self._next_s = first_s
        self._early_exits = 0
        self._stable_at_mono = 0.0

    @property
    def keeps_restarting(self) -> bool:
        return self._early_exits >= REPEATED and time.monotonic() < self._stable_at_mono

    def pause_after(self, uptime_s: float) -> float:
        """Return the delay after an exit of a process that ran this long."""
        if uptime_s >= self._stable_after_s:
            self._next_s = self._first_s
            self._early_exits = 0
        self._early_exits += 1
        pause_s = self._next_s
        self._stable_at_mono = time.monotonic() + pause_s + self._stable_after_s
        self._next_s = min(2 * pause_s, self._longest_s)
        return pause_s
