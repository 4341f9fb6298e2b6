"""The worker: handlers by tube, run in threads and processes until a signal."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import greenstalk

from beanstalkd_py.client.worker.consumer import Function, Handler, Settings
from beanstalkd_py.client.worker.events import Hook
from beanstalkd_py.client.worker.hooks import Hooks, log_event
from beanstalkd_py.client.worker.processes import ProcessSupervisor
from beanstalkd_py.client.worker.retry import Backoff, Retry
from beanstalkd_py.client.worker.stop_requests import StopRequests
from beanstalkd_py.client.worker.threads import run_threads

AnyFunction = TypeVar("AnyFunction", bound=Function)


class Worker:
    """Runs handlers for the jobs of tubes, and deletes, retries or buries the jobs.

    A handler is a function with a Delivery as its argument. The job is deleted when it returns. If
    it raises an exception, the job is retried as `retry` says. While it runs, the job is touched.
    Every job is handled at least once: again if a process, a connection or the server ends before
    the server has deleted the job.

    `threads` is the number of jobs at a time in a process. With `processes`, so many processes are
    forked, and replaced if they end; without, handlers run in threads of this process. `reconnect`
    has the delays before a thread connects again and a process is started again. `grace` is the
    time in seconds that a stop gives to handlers. `hooks` are called with each event.
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
        self._address = address
        self._threads = threads
        self._processes = processes
        self._retry = retry or Retry()
        self._reconnect = reconnect or Backoff(first=0.1, most=30.0, jitter=0.5)
        self._grace_s = grace
        self._hooks = Hooks(tuple(hooks))
        self._tls = tls
        self._handlers: dict[str, Handler] = {}
        self._lock = threading.Lock()
        self._requests: StopRequests | None = None
        self._is_stopped = False

    def handler(
        self, tube: str, *, retry: Retry | None = None
    ) -> Callable[[AnyFunction], AnyFunction]:
        """Return a decorator that makes a function the handler of a tube, and returns it."""

        def register(function: AnyFunction) -> AnyFunction:
            if tube in self._handlers:
                raise ValueError(f"tube {tube} has a handler")
            self._handlers[tube] = Handler(function, retry or self._retry)
            return function

        return register

    def run(self) -> None:
        """Handle jobs until SIGTERM, SIGINT or `stop`.

        A stop reserves nothing more, and waits for the handlers that run. After the grace, or at a
        second signal, the server makes their jobs ready again, and the functions end with the
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
        """Stop as at SIGTERM, from any thread; a worker that does not run yet will not start.

        Further calls do nothing.
        """
        with self._lock:
            if self._requests is not None and not self._is_stopped:
                self._requests.request()
            self._is_stopped = True

    def _run(self, requests: StopRequests) -> None:
        if not self._processes:
            run_threads(self._settings(), self._threads, self._grace_s, requests)
            return
        supervisor = ProcessSupervisor(
            self._processes, self._run_child, self._hooks, self._reconnect, self._grace_s
        )
        supervisor.run(requests)

    def _run_child(self, parent_end: int) -> None:
        requests = StopRequests()
        with requests.on_signals():
            settings = self._settings()
            run_threads(settings, self._threads, self._grace_s, requests, parent_end)

    def _settings(self) -> Settings:
        return Settings(self._address, self._tls, self._handlers, self._reconnect, self._hooks)
