"""Background work: one thread dispatches, one for each periodic task runs it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from beanstalkd_py.history.files.health import Health, is_no_space

RETRY_SECONDS = 1.0


class Upkeep:
    """The threads of one store. A full disk is retried; any other failure fails the store."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._stopping = threading.Event()
        self._appended = threading.Event()
        self._threads: list[threading.Thread] = []
        self.no_space_error: OSError | None = None
        """Why dispatch is stopped, while it is."""

    def start_dispatching(self, dispatch: Callable[[], None]) -> None:
        """Dispatch after each `report_append`."""
        self._start(self._dispatch, dispatch)

    def start_task(self, seconds: float, task: Callable[[], None]) -> None:
        self._start(self._repeat, seconds, task)

    def _start(self, run: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, name="history-upkeep", daemon=True)
        self._threads.append(thread)
        thread.start()

    def report_append(self) -> None:
        if not self._appended.is_set():
            self._appended.set()

    def stop(self) -> None:
        self._stopping.set()
        self._appended.set()
        for thread in self._threads:
            thread.join()

    def _dispatch(self, dispatch: Callable[[], None]) -> None:
        while not self._stopping.is_set() and self._health.failure is None:
            self._appended.wait()
            self._appended.clear()
            self.no_space_error = self._attempt(dispatch)
            if self.no_space_error is not None:
                self._stopping.wait(RETRY_SECONDS)
                self._appended.set()

    def _repeat(self, seconds: float, task: Callable[[], None]) -> None:
        while not self._stopping.wait(seconds) and self._health.failure is None:
            self._attempt(task)

    def _attempt(self, task: Callable[[], None]) -> OSError | None:
        """Run a task. Return the error of a full disk; other failures fail the store."""
        try:
            task()
        except Exception as error:
            if isinstance(error, OSError) and is_no_space(error):
                return error
            self._health.fail(error)
        return None
