"""A compaction on request, of one worker's binlog: step by step, with time for clients between.

Must not know who wants it, nor how a worker is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any

import gevent

from beanstalkd_py import errors
from beanstalkd_py.core.step_results import Compacting

WAIT_S = 0.02
NO_PROGRESS_S = 30.0
NEWS_S = 0.1


def compact(
    worker: int, per_cent: int, ask: Callable[[dict[str, Any]], dict[str, Any]]
) -> Generator[dict[str, int], None, int]:
    """Yields {"worker", "bytes", "alive"} as it goes on, the last at its end; the bytes freed.

    Until there are at most `per_cent` bytes in all files for every hundred that are needed, or all
    files that were there at first are gone: clients may make more to do meanwhile. Raises
    ControlError when the worker goes, or nothing has become better for long.
    """
    last_file, first, last = 0, -1, (-1, -1)
    since_mono = said_mono = time.monotonic()
    while True:
        step = ask({"do": "compact", "per-cent": per_cent, "last": last_file})
        last_file, now_mono = step["last"], time.monotonic()
        state = int(step["bytes"]), int(step["alive"])
        first = state[0] if first < 0 else first
        news = {"worker": worker, "bytes": state[0], "alive": state[1]}
        if step["outcome"] == Compacting.DONE:
            yield news
            return first - state[0]
        if state != last:
            since_mono, last = now_mono, state
        if now_mono > since_mono + NO_PROGRESS_S:
            raise errors.ControlError(
                f"worker {worker} cannot be compacted further: is the disk full?"
            )
        if now_mono >= said_mono + NEWS_S:
            said_mono = now_mono
            yield news
        gevent.sleep(WAIT_S if step["outcome"] == Compacting.WAIT else 0)
