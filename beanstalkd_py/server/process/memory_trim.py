"""Returns memory to the system after a peak of jobs.

The allocator keeps freed pages below memory in use, so that a worker would stay as large as its
peak. `malloc_trim` returns such pages, but blocks the worker for about 0.1 s per GB. Therefore it
runs only when it can return much memory, and preferably while the worker is idle.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from beanstalkd_py.core._core import lib
from beanstalkd_py.server.process.proc_stats import process_usage

CHECK_INTERVAL_S = 1.0
MIN_GAIN = 16 << 20
"""Bytes below which a trim is not worth its time."""
IDLE_SHARE = 0.1
"""The share of a processor below which a worker is idle."""
MAX_WAIT_S = 10.0
"""The time after which a trim runs even if the worker is busy."""


class MemoryTrimmer:
    """Trims when the overhead has doubled, and grown by MIN_GAIN, since its minimum.

    The overhead is the resident memory beyond `job_bytes`: freed jobs and buffers increase it.
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
        self._min_overhead = self._overhead()
        self._due_since_mono: float | None = None
        self._checked_mono = time.monotonic()
        self._cpu_s = time.process_time()

    def check(self) -> None:
        """Trim if that is due. Does nothing if called again within CHECK_INTERVAL_S."""
        now_mono = time.monotonic()
        passed_s = now_mono - self._checked_mono
        if passed_s < CHECK_INTERVAL_S:
            return
        cpu_s = time.process_time()
        idle = cpu_s - self._cpu_s < IDLE_SHARE * passed_s
        self._checked_mono, self._cpu_s = now_mono, cpu_s
        self.decide(now_mono, idle)

    def decide(self, now_mono: float, idle: bool) -> None:
        overhead = self._overhead()
        self._min_overhead = min(self._min_overhead, overhead)
        if overhead < max(2 * self._min_overhead, self._min_overhead + MIN_GAIN):
            self._due_since_mono = None
            return
        if self._due_since_mono is None:
            self._due_since_mono = now_mono
        if idle or now_mono - self._due_since_mono >= MAX_WAIT_S:
            self._trim()
            self._due_since_mono = None
            self._min_overhead = self._overhead()

    def _overhead(self) -> int:
        return max(0, self._resident() - self._job_bytes())
