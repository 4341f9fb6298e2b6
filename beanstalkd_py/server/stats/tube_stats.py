"""The statistics of all tubes, packed for the control socket or cached for metrics.

A tube belongs to one worker, so the rows of several workers need no merging.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import gevent
from gevent.lock import Semaphore

from beanstalkd_py import errors
from beanstalkd_py.control.tube_stats import Row, rows
from beanstalkd_py.core.core import Core

PAGE_BYTES = 60_000
"""The size of one page; a channel message has at most 64 KiB."""
MAX_AGE_S = 1.0
REQUEST_LIMIT_S = 3.0
"""The limit for all tubes of one worker. Prometheus waits ten seconds for a scrape."""

RequestPages = Callable[[], Iterable[bytes]]
"""Requests the packed rows of one worker. Raises ControlError."""


def read_page(core: Core, first: int) -> tuple[bytes, int | None]:
    """Return packed rows from one slot on, and the slot of the next page, None at the end."""
    return core.tube_stats(first, PAGE_BYTES)


@dataclass(slots=True)
class TubeStatsSnapshot:
    """The rows of one request to all workers, and the workers that did not answer."""

    rows: list[Row] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)


class TubeStatsCache:
    """Requests the statistics at most once per `max_age_s`, however many callers there are."""

    def __init__(
        self,
        workers: Sequence[RequestPages],
        max_age_s: float = MAX_AGE_S,
        limit_s: float = REQUEST_LIMIT_S,
    ) -> None:
        self._workers = workers
        self._max_age_s = max_age_s
        self._limit_s = limit_s
        self._lock = Semaphore()
        self._last = TubeStatsSnapshot()
        self._last_mono = -max_age_s

    def get(self) -> TubeStatsSnapshot:
        """Return a snapshot that callers share and must not change."""
        with self._lock:
            if time.monotonic() - self._last_mono >= self._max_age_s:
                self._last = self._request_all()
                self._last_mono = time.monotonic()
            return self._last

    def _request_all(self) -> TubeStatsSnapshot:
        snapshot = TubeStatsSnapshot()
        tasks = [gevent.spawn(partial(self._request, worker)) for worker in self._workers]
        for worker, task in enumerate(tasks):
            answer = task.get()
            if answer is None:
                snapshot.missing.append(worker)
            else:
                snapshot.rows += answer
        return snapshot

    def _request(self, worker: RequestPages) -> list[Row] | None:
        def request() -> list[Row]:
            return [row for packed in worker() for row in rows(packed)]

        try:
            return gevent.with_timeout(self._limit_s, request, timeout_value=None)
        except errors.ControlError:
            return None  # the worker is restarting or stopping
