"""ThrottledLog as log lines: the first at once, then one in a while that says how many there were.

Knows what it is told, not what was refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from beanstalkd_py.server.logging.setup import LOGGER

QUIET_S = 10.0


class ThrottledLog:
    """Those of one kind. `what` is their plural, such as "connections refused"."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._unsaid = 0
        self._said_mono = clock() - QUIET_S

    def note(self, reason: str) -> None:
        """One more, and why."""
        self._unsaid += 1
        now = self._clock()
        if now < self._said_mono + QUIET_S:
            return
        LOGGER.warning("%s: %d; %s", self._what, self._unsaid, reason)
        self._unsaid = 0
        self._said_mono = now
