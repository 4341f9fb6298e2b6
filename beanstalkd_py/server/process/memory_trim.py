"""Returns memory to the system after a peak of jobs.

The allocator keeps freed pages that lie below memory in use, so a worker would stay as large as its
peak. `malloc_trim` returns such pages, but blocks the worker for about 0.1 s per GB. So it runs
only when there is much to gain, and preferably while the worker is idle.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from beanstalkd_py.core._core import lib
from beanstalkd_py.server.process.proc_stats import process_usage

CHECK_INTERVAL_S = 1.0
LEAST_GAIN = 16 << 20
"""Bytes below which a trim is not worth its time."""
IDLE_SHARE = 0.1
"""The share of a processor below which a worker is idle."""
LONGEST_WAIT_S = 10.0
"""The time after which a busy worker is trimmed, too."""


class MemoryTrimmer:
    """Trims when the overhead has doubled, and grown by LEAST_GAIN, since its minimum.

    The overhead is the resident memory without `job_bytes`: freed jobs and buffers increase it.
    """

    def __init__(
        self,
        job_bytes: Callable[[], int],
        resident: Callable[[], int] = lambda: process_usage(os.getpid()).resident_bytes,
        trim: Callable[[], None] = lib.bs_trim_memory,
    ) -> None:
        self._job_bytes = job_bytes
        self._resident = resident
        self._trim = trim
        self._least = self._overhead()
        self._due_since: float | None = None
        self._checked = time.monotonic()
        self._cpu = time.process_time()

    def check(self) -> None:
        """Trim if that is due. Does nothing if called again within CHECK_INTERVAL_S."""
        now = time.monotonic()
        passed = now - self._checked
        if passed < CHECK_INTERVAL_S:
            return
        cpu = time.process_time()
        idle = cpu - self._cpu < IDLE_SHARE * passed
        self._checked, self._cpu = now, cpu
        self.decide(now, idle)

    def decide(self, now: float, idle: bool) -> None:
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
            self._least = self._overhead()

    def _overhead(self) -> int:
        return max(0, self._resident() - self._job_bytes())
