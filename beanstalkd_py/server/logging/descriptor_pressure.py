"""An episode in which connections have to wait, told once and not once per connection.

Knows how to pause and what to log, not what is short.
"""

from __future__ import annotations

import time

import gevent

from beanstalkd_py.server.logging.setup import LOGGER

PAUSE_S = 0.05
QUIET_S = 10.0
"""A new episode within this time of the last line is the same story and stays unlogged."""


class DescriptorPressure:
    """An episode without room: it begins with a pause and ends when nobody waits any more."""

    def __init__(self) -> None:
        self._lasting = False
        self._logged_mono = -QUIET_S

    def pause(self, reason: str) -> None:
        """Sleeps a moment; the first time in an episode says why."""
        now = time.monotonic()
        if not self._lasting and now - self._logged_mono >= QUIET_S:
            LOGGER.warning("new connections have to wait: %s", reason)
            self._logged_mono = now
        self._lasting = True
        gevent.sleep(PAUSE_S)

    def over(self) -> None:
        """Everyone who waited has been served."""
        if self._lasting:
            LOGGER.info("new connections are accepted again")
        self._lasting = False
