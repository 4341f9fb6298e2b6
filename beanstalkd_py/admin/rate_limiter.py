"""Spreads jobs evenly over time."""

from __future__ import annotations

import time
from collections.abc import Callable

from beanstalkd_py.admin.connection import Connection

SLEEP_S = 0.1
"""Interval between checks for a stop."""
KEEPALIVE_S = 5.0
"""Interval between commands while waiting, because the server may close idle connections."""
BATCH_S = 0.01
"""At high rates, one batch has the jobs of this time."""
CATCH_UP_S = 0.1
"""The limiter makes up for delays of up to this time."""


class RateLimiter:
    """Spreads jobs evenly at `rate` per second; None is unlimited. `now` is monotonic seconds."""

    def __init__(self, rate: float | None, max_batch: int) -> None:
        self._rate = rate
        self._due: float | None = None
        self.batch_jobs = max_batch if rate is None else max(1, min(max_batch, int(rate * BATCH_S)))

    def wait_s(self, now: float) -> float:
        return 0.0 if self._rate is None or self._due is None else max(0.0, self._due - now)

    def record(self, count: int, now: float) -> None:
        if self._rate is not None:
            due = now if self._due is None else max(self._due, now - CATCH_UP_S)
            self._due = due + count / self._rate

    def wait(self, connection: Connection, stopped: Callable[[], bool]) -> bool:
        """Wait until the next jobs are due; return False if `stopped()` is true before."""
        sent_mono = time.monotonic()
        while (left_s := self.wait_s(now_mono := time.monotonic())) > 0:
            if stopped():
                return False
            if now_mono - sent_mono > KEEPALIVE_S:
                connection.execute(b"list-tube-used")
                sent_mono = now_mono
            time.sleep(min(left_s, SLEEP_S))
        return True
