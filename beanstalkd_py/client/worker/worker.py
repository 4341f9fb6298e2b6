"""The worker: handlers by tube, run in threads and processes until a signal."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import greenstalk

from beanstalkd_py.client.worker.consumer import Consumer, Function, Handler, Settings
from beanstalkd_py.client.worker.events import Hook
from beanstalkd_py.client.worker.hooks import Hooks, log_event
from beanstalkd_py.client.worker.keep_alive import KeepAlive
from beanstalkd_py.client.worker.processes import ProcessSupervisor
from beanstalkd_py.client.worker.retry import Backoff, Retry
from beanstalkd_py.client.worker.stop_requests import StopRequests

AnyFunction = TypeVar("AnyFunction", bound=Function)

POLL_S = 0.02
"""How often a stop checks whether the threads have ended."""


class Worker:
    """Runs handlers for the jobs of tubes, and deletes, retries or buries the jobs.

    A handler is a function with a Delivery as its argument. The worker touches the job while the
    handler runs, and deletes it when the handler returns. If the handler raises an exception,
    `retry` decides when the job runs again. Every job is handled at least once: again if a process,
    a connection or the server ends before the server has deleted the job.

    `threads` is the number of concurrent jobs of a process. `processes` is the number of processes
    to fork, and to replace if they end; with 0, handlers run in threads of this process.
    `reconnect` has the delays before a thread connects again and before a process is started again.
    `grace` is the time in seconds that a stop gives to handlers. `hooks` get each event.
    """

    def __init__(
        self,
        address: greenstalk.Address,
        *,
        threads: int = 1,
        processes: int = 0,
        retry: Retry | None = None,
        reconnect: Backoff | None = None,
        grace: float = 30.0,
        hooks: Sequence[Hook] = (log_event,),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if threads < 1 or processes < 0:
            raise ValueError(
                "a worker needs a thread at least, and no negative number of processes"
            )
        self._threads = threads
        self._processes = processes
        self._retry = retry or Retry()
        self._grace_s = grace
        self._handlers: dict[str, Handler] = {}
        backoff = reconnect or Backoff(first=0.1, most=30.0, jitter=0.5)
        self._settings = Settings(address, tls, self._handlers, backoff, Hooks(tuple(hooks)))
        self._lock = threading.Lock()
        self._requests: StopRequests | None = None
        self._is_stopped = False

    def handler(
        self, tube: str, *, retry: Retry | None = None
    ) -> Callable[[AnyFunction], AnyFunction]:
        """Return a decorator that registers a function as the handler of a tube."""

        def register(function: AnyFunction) -> AnyFunction:
            if tube in self._handlers:
                raise ValueError(f"tube {tube} has a handler")
            self._handlers[tube] = Handler(function, retry or self._retry)
            return function

        return register

    def run(self) -> None:
        """Handle jobs until SIGTERM, SIGINT or `stop`.

        A stop reserves no more jobs, and waits for running handlers. After the grace, or at a
        second signal, the server makes their jobs ready again, and the handlers end with the
        process. Signals are handled in the main thread only.
        """
        if not self._handlers:
            raise ValueError("the worker has no handler")
        requests = StopRequests()
        with self._lock:
            if self._is_stopped:
                requests.request()
            self._requests = requests
        try:
            with requests.on_signals():
                self._run(requests)
        finally:
            with self._lock:
                self._requests = None
                self._is_stopped = False
            requests.close()

    def stop(self) -> None:
        """Stop as at SIGTERM, from any thread; a worker that has not started will not start.

        Further calls do nothing.
        """
        with self._lock:
            if self._requests is not None and not self._is_stopped:
                self._requests.request()
            self._is_stopped = True

    def _run(self, requests: StopRequests) -> None:
        if not self._processes:
            _run_threads(self._settings, self._threads, self._grace_s, requests)
            return
        settings = self._settings
        supervisor = ProcessSupervisor(
            self._processes, self._run_child, settings.hooks, settings.reconnect, self._grace_s
        )
        supervisor.run(requests)

    def _run_child(self, parent_end: int) -> None:
        requests = StopRequests()
        with requests.on_signals():
            _run_threads(self._settings, self._threads, self._grace_s, requests, parent_end)


def _run_threads(
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
    try:
        # A start fails at a limit of threads. The threads that have started then end as at a stop.
        keep_alive.start()
        for consumer in consumers:
            consumer.start()
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
