"""Gives memory that a peak of jobs has left behind back to the system.

The allocator keeps freed memory that lies below memory in use, so that after a peak a worker stays
as large as it ever was. `malloc_trim` gives such pages back, but takes about 0.1 s per GB and holds
up the worker, so it runs only when there is much to gain, and rather while the worker is idle.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from beanstalkd_py.core._core import lib
from beanstalkd_py.server.process.proc_stats import PAGE_BYTES

LOOK_S = 1.0
LEAST_GAIN = 16 << 20
"""Bytes below which a trim is not worth its time."""
IDLE_SHARE = 0.1
"""A worker that uses less of a processor than this is idle."""
LONGEST_WAIT_S = 10.0
"""How long a worker may be busy before it is trimmed all the same."""


def resident_bytes() -> int:
    """The memory of this process that is in RAM."""
    with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - pathlib is a slow import
        return int(statm.read().split()[1]) * PAGE_BYTES


class MemoryTrimmer:
    """Decides when a worker is trimmed. `job_bytes` returns what its jobs take.

    The rest of its memory is its overhead. A trim is due when the overhead has doubled, and grown
    by LEAST_GAIN, since it was smallest: that is what freed jobs and buffers leave behind.
    """

    def __init__(
        self,
        job_bytes: Callable[[], int],
        resident: Callable[[], int] = resident_bytes,
        trim: Callable[[], None] = lib.bs_trim_memory,
    ) -> None:
        self._job_bytes = job_bytes
        self._resident = resident
        self._trim = trim
        self._least = self._overhead()
        self._due_since: float | None = None
        self._looked = time.monotonic()
        self._cpu = time.process_time()

    def look(self) -> None:
        """Trims if that is due. To be called often; looks once in LOOK_S."""
        now = time.monotonic()
        passed = now - self._looked
        if passed < LOOK_S:
            return
        cpu = time.process_time()
        idle = cpu - self._cpu < IDLE_SHARE * passed
        self._looked, self._cpu = now, cpu
        self.decide(now, idle)

    def decide(self, now: float, idle: bool) -> None:
        """One look at the time `now`, in seconds."""
        overhead = self._overhead()
        self._least = min(self._least, overhead)
        if overhead < max(2 * self._least, self._least + LEAST_GAIN):
            self._due_since = None
            return
        if self._due_since is None:
            self._due_since = now
        if idle or now - self._due_since >= LONGEST_WAIT_S:
            self._trim()
            self._due_since = None
            # What remains is in use, so it is what later looks compare with.
            self._least = self._overhead()

    def _overhead(self) -> int:
        return max(0, self._resident() - self._job_bytes())
