"""Pauses accepting while descriptors are short, and logs once per episode."""

from __future__ import annotations

import errno
import time

import gevent

from beanstalkd_py.server.logging.setup import LOGGER

PAUSE_S = 0.05
QUIET_S = 10.0
"""A new episode within this time of the last message is not logged."""
OUT_OF_DESCRIPTORS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class DescriptorPressure:
    """One episode at a time: it begins with `pause` and ends with `relieve`."""

    def __init__(self) -> None:
        self._lasting = False
        self._logged_mono = -QUIET_S

    def pause(self, reason: str) -> None:
        now = time.monotonic()
        if not self._lasting and now - self._logged_mono >= QUIET_S:
            LOGGER.warning("new connections have to wait: %s", reason)
            self._logged_mono = now
        self._lasting = True
        gevent.sleep(PAUSE_S)

    def relieve(self) -> None:
        if self._lasting:
            LOGGER.info("new connections are accepted again")
        self._lasting = False
