"""Tells the service manager that all is well, for as long as it is.

Several workers are looked after by their keepers, so then it is enough that this process runs. A
single one is asked here: nobody else would notice that it does nothing any more. Must not know what
the manager does about silence.
"""

from __future__ import annotations

from collections.abc import Callable

import gevent

FEEDS_PER_LIMIT = 4
"""So one that comes late does no harm."""


class Watchdog:
    """`feed` tells the manager; `ask`, for a single worker, has it answer: call `answered` then.

    `limit_s` is the longest silence that the manager bears, seconds.
    """

    def __init__(
        self, limit_s: float, feed: Callable[[], None], ask: Callable[[], object] | None
    ) -> None:
        self._interval_s = limit_s / FEEDS_PER_LIMIT
        self._feed = feed
        self._ask = ask
        self._waits = False

    def answered(self) -> None:
        """The worker lives."""
        self._waits = False

    def run(self) -> None:
        """Feeds until its greenlet is killed."""
        while True:
            if not self._waits:
                self._feed()
                if self._ask is not None:
                    self._waits = True
                    self._ask()
            gevent.sleep(self._interval_s)
