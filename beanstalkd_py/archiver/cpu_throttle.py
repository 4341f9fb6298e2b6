"""Limit the archiver's CPU use while other threads wait for a processor.

The archiver can wait, because the binlog keeps its work. /proc/thread-self/schedstat shows how long
this thread ran and how long it waited for a processor; waiting means that the machine is busy.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from beanstalkd_py.quantities import NS_PER_S

SHARE = 0.05
"""Share of a processor that the archiver uses on a busy machine."""
CROWDED = 0.25
"""A machine is busy if this thread waits more than this fraction of its running time."""
LONGEST_S = 0.2

Times = tuple[int, int]
"""Nanoseconds that this thread ran, and that it waited for a processor."""


def times_of_this_thread() -> Times:
    """Return the scheduler's counters of this thread; zeros if the kernel has none."""
    try:
        run, waited, _ = Path("/proc/thread-self/schedstat").read_text().split()
    except (OSError, ValueError):
        return 0, 0
    return int(run), int(waited)


class CpuThrottle:
    """Computes the pauses of one thread."""

    def __init__(self, times: Callable[[], Times] = times_of_this_thread) -> None:
        self._times = times
        self._run, self._waited = times()

    def pause_s(self) -> float:
        """Return how long to pause after the work since the last call."""
        before = self._run, self._waited
        self._run, self._waited = self._times()
        run, waited = self._run - before[0], self._waited - before[1]
        if waited <= CROWDED * run:
            return 0.0
        return min(run / SHARE / NS_PER_S, LONGEST_S)
