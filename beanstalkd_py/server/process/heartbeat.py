"""Asks a worker again and again whether it is alive.

Counts beats and not seconds: when the whole server was stopped and goes on, a worker must get the
time to answer. Must not know what is done about a worker that does not.
"""

from __future__ import annotations

from collections.abc import Callable

import gevent

HEARTBEAT_INTERVAL_S = 1.0
HEARTBEAT_LIMIT_S = 10.0


class Heartbeat:
    """One process's. `ping` asks; whoever hears the answer calls `answered`."""

    def __init__(
        self,
        ping: Callable[[], object],
        interval_s: float = HEARTBEAT_INTERVAL_S,
        limit_s: float = HEARTBEAT_LIMIT_S,
    ) -> None:
        self._ping = ping
        self._interval_s = interval_s
        self._limit = max(1, round(limit_s / interval_s))
        self._unanswered = 0

    def answered(self) -> None:
        """An answer has come."""
        self._unanswered = 0

    def run(self) -> None:
        """Returns when there has been no answer for the limit."""
        while self._unanswered < self._limit:
            # One question at a time: they must not pile up where nobody reads them.
            if self._unanswered == 0:
                self._ping()
            self._unanswered += 1
            gevent.sleep(self._interval_s)
