"""Warnings of one kind: the first at once, then one per interval with a count."""

from __future__ import annotations

import time
from collections.abc import Callable

from beanstalkd_py.server.logging.setup import LOGGER

QUIET_S = 10.0


class ThrottledLog:
    """`what` is a plural noun phrase, such as "connections refused"."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._count = 0
        self._logged_mono = clock() - QUIET_S

    def warn(self, reason: str) -> None:
        self._count += 1
        now = self._clock()
        if now < self._logged_mono + QUIET_S:
            return
        LOGGER.warning("%s: %d; %s", self._what, self._count, reason)
        self._count = 0
        self._logged_mono = now
