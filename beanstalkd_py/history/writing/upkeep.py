"""Background work: one thread dispatches, another runs periodic syncs and expiry."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable

from beanstalkd_py.history.files.health import Health

RETRY_SECONDS = 1.0
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class Task:
    """A periodic task that runs if `is_due`."""

    def __init__(
        self, seconds: float, do: Callable[[], None], is_due: Callable[[], bool] = lambda: True
    ) -> None:
        self._seconds = seconds
        self._do = do
        self._is_due = is_due
        self._next = time.monotonic() + seconds

    def run(self) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._seconds
            if self._is_due():
                self._do()

    def left(self) -> float:
        return max(self._next - time.monotonic(), 0)


class Upkeep:
    """The threads of one store. A full disk is retried; any other failure fails the store."""

    def __init__(self, health: Health, dispatch: Callable[[], None], tasks: list[Task]) -> None:
        self._health = health
        self._dispatch = dispatch
        self._tasks = tasks
        self._stopping = threading.Event()
        self._appended = threading.Event()
        self.no_space_error: OSError | None = None
        """Why dispatch is stopped, while it is."""
        self._threads = [
            threading.Thread(target=self._dispatching, name="history-dispatch", daemon=True),
            threading.Thread(target=self._by_time, name="history-upkeep", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def note_append(self) -> None:
        if not self._appended.is_set():
            self._appended.set()

    def stop(self) -> None:
        """Stop the threads and wait for them."""
        self._stopping.set()
        self._appended.set()
        for thread in self._threads:
            thread.join()

    def _dispatching(self) -> None:
        while not self._stopping.is_set() and self._health.failure is None:
            self._appended.wait()
            self._appended.clear()
            self.no_space_error = self._attempt(self._dispatch)
            if self.no_space_error is not None:
                self._stopping.wait(RETRY_SECONDS)
                self._appended.set()

    def _by_time(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause) and self._health.failure is None:
            for task in self._tasks:
                self._attempt(task.run)
            pause = min(task.left() for task in self._tasks)

    def _attempt(self, do: Callable[[], None]) -> OSError | None:
        """Run it. Return the error of a full disk; other failures fail the store."""
        try:
            do()
        except Exception as error:
            if isinstance(error, OSError) and error.errno in NO_SPACE:
                return error
            self._health.fail(error)
        return None
