"""The processes of a worker: started by fork, replaced when they end, stopped together.

The children inherit the handlers, so that these need not be importable. The parent starts no
thread and connects to no server.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkProcess

from beanstalkd_py.client.worker.events import ProcessEnded, ProcessNotStarted
from beanstalkd_py.client.worker.hooks import Hooks
from beanstalkd_py.client.worker.retry import Backoff
from beanstalkd_py.client.worker.stop_requests import STOP_SIGNALS, StopRequests

STABLE_S = 60.0
"""The end of a process of this age does not count as a repeated failure."""
END_S = 5.0
"""The time for a process to end after its handlers."""

POLL_S = 1.0
"""The interval of checks for ended children. A sentinel does not report the end of a child if a
process that the child forked has inherited its descriptors."""

RunChild = Callable[[int], None]
"""Runs in a child until the descriptor is readable: the parent stops or has ended."""


class _Slot:
    """One of the processes, and its later replacements."""

    def __init__(self) -> None:
        self.process: ForkProcess | None = None
        self.started_mono = 0.0
        self.due_mono = 0.0
        self.failures = 0


class ProcessSupervisor:
    """Keeps `count` processes running until a request to stop."""

    def __init__(
        self, count: int, run_child: RunChild, hooks: Hooks, restart: Backoff, grace_s: float
    ) -> None:
        self._run_child = run_child
        self._hooks = hooks
        self._restart = restart
        self._grace_s = grace_s
        self._slots = [_Slot() for _ in range(count)]
        self._cannot_start = False
        # The children detect that the write end is closed: at a stop, or when this process ends.
        self._alive_read, self._alive_write = os.pipe()

    def run(self, requests: StopRequests) -> None:
        """Return when all processes have ended after a request."""
        try:
            while not requests.take():
                self._start_due()
                sentinels = [process.sentinel for process in self._running()]
                requests.wait(self._pause_s(), sentinels)
                self._remove_ended()
        finally:
            os.close(self._alive_write)
            self._wait_for_end(requests)
            os.close(self._alive_read)

    def _running(self) -> list[ForkProcess]:
        return [slot.process for slot in self._slots if slot.process is not None]

    def _pause_s(self) -> float:
        due = [slot.due_mono for slot in self._slots if slot.process is None]
        return _until(min(due, default=math.inf))

    def _start_due(self) -> None:
        now_mono = time.monotonic()
        for slot in self._slots:
            if slot.process is None and slot.due_mono <= now_mono:
                self._start(slot)

    def _start(self, slot: _Slot) -> None:
        """Start a process, or report that it cannot start and set the time of the next attempt."""
        process = multiprocessing.get_context("fork").Process(target=self._child)
        now_mono = time.monotonic()
        try:
            with _signals_blocked():
                if self._cannot_start:
                    _check_fork()
                process.start()
        except OSError as error:
            self._cannot_start = True
            slot.failures += 1
            pause_s = self._restart.delay(slot.failures)
            slot.due_mono = now_mono + pause_s
            self._hooks.emit(ProcessNotStarted(error, pause_s))
        else:
            self._cannot_start = False
            slot.process, slot.started_mono = process, now_mono

    def _child(self) -> None:
        os.close(self._alive_write)
        self._run_child(self._alive_read)

    def _remove_ended(self) -> None:
        for slot in self._slots:
            process = slot.process
            if process is None or process.exitcode is None:
                continue
            now_mono = time.monotonic()
            stable = now_mono - slot.started_mono > STABLE_S
            slot.failures = 1 if stable else slot.failures + 1
            pause_s = self._restart.delay(slot.failures)
            slot.process, slot.due_mono = None, now_mono + pause_s
            assert process.pid is not None
            self._hooks.emit(ProcessEnded(process.pid, process.exitcode, pause_s))
            process.close()

    def _wait_for_end(self, requests: StopRequests) -> None:
        """Wait for the children; kill them after the grace, or at a second request."""
        end_mono = time.monotonic() + self._grace_s + END_S
        while running := [one for one in self._running() if one.exitcode is None]:
            requests.wait(_until(end_mono), [process.sentinel for process in running])
            if requests.take() or time.monotonic() > end_mono:
                for process in running:
                    process.kill()
                    process.join()


def _check_fork() -> None:
    """Raise OSError if the system cannot fork, because `Process.start` then leaks its pipes."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _until(time_mono: float) -> float:
    return min(max(time_mono - time.monotonic(), 0), POLL_S)


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block the stop signals while a child still has the handlers of its parent."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
