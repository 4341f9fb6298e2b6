"""Compacts one worker's binlog on request, in small steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator

import gevent

from beanstalkd_py import errors
from beanstalkd_py.core.step_results import CompactStep, StepOutcome

WAIT_S = 0.02
NO_PROGRESS_S = 30.0
PROGRESS_S = 0.1


def compact(
    worker: int, per_cent: int, step: Callable[[int, int], CompactStep]
) -> Generator[dict[str, int], None, int]:
    """Yield {"worker", "bytes", "alive"} as progress and at the end; return the bytes freed.

    `step` is Core.compact on the worker. Ends when the files have at most `per_cent` bytes for
    every hundred live bytes, or all initial files are gone, because clients write meanwhile.
    Raises ControlError if the worker ends or there is no progress.
    """
    last_file, first, last = 0, -1, (-1, -1)
    progress_mono = reported_mono = time.monotonic()
    while True:
        done = step(per_cent, last_file)
        last_file, now_mono = done.last, time.monotonic()
        state = done.total_bytes, done.alive_bytes
        first = state[0] if first < 0 else first
        report = {"worker": worker, "bytes": state[0], "alive": state[1]}
        if done.outcome == StepOutcome.DONE:
            yield report
            return first - state[0]
        if state != last:
            progress_mono, last = now_mono, state
        if now_mono > progress_mono + NO_PROGRESS_S:
            raise errors.ControlError(
                f"cannot compact worker {worker} further; check for a full disk"
            )
        if now_mono >= reported_mono + PROGRESS_S:
            reported_mono = now_mono
            yield report
        gevent.sleep(WAIT_S if done.outcome == StepOutcome.WAIT else 0)
