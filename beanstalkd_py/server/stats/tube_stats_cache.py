"""What all tubes have and have counted, asked of the workers at most once a second.

However many ask at the same time, the workers are asked once. One that does not answer in time is
left out, and named. Must not know what the rows are for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import gevent
from gevent.lock import Semaphore

from beanstalkd_py import errors
from beanstalkd_py.control.tube_stats import Row, rows
from beanstalkd_py.server.stats.tube_stats import Ask, packed_pages

KEPT_S = 1.0
ANSWER_LIMIT_S = 3.0
"""For all tubes of one worker. Prometheus waits ten seconds for everything."""


@dataclass(slots=True)
class TubeStatsSnapshot:
    """Rows as of one moment, and the workers whose tubes are not among them."""

    rows: list[Row] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)


class TubeStatsCache:
    """Asks `workers` workers; `ask` gives the way to ask one."""

    def __init__(
        self,
        workers: Sequence[int],
        ask: Callable[[int], Ask],
        kept_s: float = KEPT_S,
        limit_s: float = ANSWER_LIMIT_S,
    ) -> None:
        self._workers = workers
        self._ask = ask
        self._kept_s = kept_s
        self._limit_s = limit_s
        self._asking = Semaphore()
        self._last = TubeStatsSnapshot()
        self._last_mono = -kept_s

    def take(self) -> TubeStatsSnapshot:
        """Not older than KEPT_S. The rows are all_connections's: do not change them."""
        with self._asking:
            if time.monotonic() - self._last_mono >= self._kept_s:
                self._last = self._survey()
                self._last_mono = time.monotonic()
            return self._last

    def _survey(self) -> TubeStatsSnapshot:
        found = TubeStatsSnapshot()
        tasks = [gevent.spawn(partial(self._one, worker)) for worker in self._workers]
        for worker, task in zip(self._workers, tasks, strict=True):
            answer = task.get()
            if answer is None:
                found.missing.append(worker)
            else:
                found.rows += answer
        return found

    def _one(self, worker: int) -> list[Row] | None:
        """The tubes of one worker; None if it did not tell all of them in time."""
        found: list[Row] = []
        limit = gevent.Timeout.start_new(self._limit_s)
        try:
            for packed in packed_pages([worker], self._ask):
                found += rows(packed)
        except errors.ControlError:
            return None  # it is being replaced, or stops
        except gevent.Timeout as over:
            if over is not limit:
                raise
            return None
        finally:
            limit.close()
        return found
