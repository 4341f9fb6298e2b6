"""How much of a processor the archiver takes from those who need it more.

What it does can wait: the binlog keeps it. So where it has to queue for a processor, others do as
well, and it does little until there is room again, or until too much has gathered. The scheduler
counts how long a thread has run and how long it was kept waiting. Must not know what is done.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

SHARE = 0.05
"""Of a processor that it takes where there are not enough."""
CROWDED = 0.25
"""Waiting for a processor, as a share of running on one: from here on there are not enough."""
LONGEST_S = 0.2
_NS_PER_S = 10**9

Times = tuple[int, int]
"""Nanoseconds that this thread has run, and that it could have run and did not."""


def times_of_this_thread() -> Times:
    """By the scheduler's own count; zeros from a kernel that does not count."""
    try:
        run, waited, _ = Path("/proc/thread-self/schedstat").read_text().split()
    except (OSError, ValueError):
        return 0, 0
    return int(run), int(waited)


class Courtesy:
    """The pauses of one thread."""

    def __init__(self, times: Callable[[], Times] = times_of_this_thread) -> None:
        self._times = times
        self._run, self._waited = times()

    def pause_s(self) -> float:
        """How long to do nothing after what was done since the last call, seconds."""
        before = self._run, self._waited
        self._run, self._waited = self._times()
        run, waited = self._run - before[0], self._waited - before[1]
        if waited <= CROWDED * run:
            return 0.0
        return min(run / SHARE / _NS_PER_S, LONGEST_S)
