"""Limits how often warnings that repeat are logged."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable

import gevent

from beanstalkd_py.server.logging.setup import LOGGER

PAUSE_S = 0.05
LOG_INTERVAL_S = 10.0
"""The minimum time between two messages."""
OUT_OF_DESCRIPTORS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class DescriptorPressure:
    """Pauses accepting while descriptors are short, and logs once per episode.

    An episode begins with `pause` and ends with `relieve`.
    """

    def __init__(self) -> None:
        self._paused = False
        self._logged_mono = -LOG_INTERVAL_S

    def pause(self, reason: str) -> None:
        now = time.monotonic()
        if not self._paused and now - self._logged_mono >= LOG_INTERVAL_S:
            LOGGER.warning("new connections have to wait: %s", reason)
            self._logged_mono = now
        self._paused = True
        gevent.sleep(PAUSE_S)

    def relieve(self) -> None:
        if self._paused:
            LOGGER.info("new connections are accepted again")
        self._paused = False


class ThrottledLog:
    """Logs the first warning at once, then one per interval with a count.

    `subject` is a plural noun phrase, such as "connections refused".
    """

    def __init__(self, subject: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._subject = subject
        self._clock = clock
        self._count = 0
        self._logged_mono = clock() - LOG_INTERVAL_S

    def warn(self, reason: str) -> None:
        self._count += 1
        now = self._clock()
        if now < self._logged_mono + LOG_INTERVAL_S:
            return
        LOGGER.warning("%s: %d; %s", self._subject, self._count, reason)
        self._count = 0
        self._logged_mono = now
