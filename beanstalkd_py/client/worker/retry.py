"""When a failed job runs again, and when a lost connection is opened again."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that grow by `factor` from `first` to `most` seconds.

    Each delay is shortened by a random share of at most `jitter`, so that many workers do not
    return at the same moment.
    """

    first: float = 1.0
    factor: float = 2.0
    most: float = 3600.0
    jitter: float = 0.1

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after this number of failures in a row, from 1 on."""
        # The limit prevents an overflow in a long outage.
        grown = self.first * self.factor ** min(failures - 1, 100)
        return min(grown, self.most) * (1 - random.random() * self.jitter)


@dataclass(frozen=True, slots=True)
class Retry:
    """A failed job is released with a delay, and buried after `max_attempts`; None is no limit.

    Every reserve of a job is an attempt, even if it ended with a lost connection or ReleaseJob. A
    kick allows as many attempts again.
    """

    max_attempts: int | None = 5
    backoff: Backoff = field(default_factory=Backoff)
