"""The threads of one process of a worker: start, and a stop that lets handlers finish."""

from __future__ import annotations

import time
from collections.abc import Sequence

from beanstalkd_py.client.worker.consumer import Consumer, Settings
from beanstalkd_py.client.worker.keep_alive import KeepAlive
from beanstalkd_py.client.worker.stop_requests import StopRequests

POLL_S = 0.02
"""How often a stop checks whether the threads have ended."""


def run_threads(
    settings: Settings,
    count: int,
    grace_s: float,
    requests: StopRequests,
    parent_end: int | None = None,
) -> None:
    """Consume in `count` threads until a request to stop, or the end of the parent process.

    Then waits `grace_s` for handlers, or until a second request. A child ignores second requests,
    because a signal to its process group or service reaches it twice. The jobs of handlers that
    still run become ready again, and their threads end with the process.
    """
    keep_alive = KeepAlive()
    consumers = [Consumer(settings, keep_alive, f"consumer-{number}") for number in range(count)]
    keep_alive.start()
    for consumer in consumers:
        consumer.start()
    try:
        requests.wait(None, [] if parent_end is None else [parent_end])
        requests.take()
    finally:
        for consumer in consumers:
            consumer.stop()
        _wait_for(consumers, grace_s, None if parent_end is not None else requests)
        for consumer in consumers:
            consumer.abandon()
        keep_alive.close()


def _wait_for(consumers: Sequence[Consumer], grace_s: float, requests: StopRequests | None) -> None:
    end_mono = time.monotonic() + grace_s
    while any(consumer.is_alive() for consumer in consumers):
        is_second = requests is not None and requests.take()
        if is_second or time.monotonic() > end_mono:
            return
        time.sleep(POLL_S)
