"""Connections that are routed to one worker, and the greenlet that passes them on.

Each worker has its own queue and greenlet, so that a full, hung or restarting worker delays only
its own connections.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from itertools import islice

import gevent
from gevent.event import Event

from beanstalkd_py.server.accept.handover import BATCH, Handover
from beanstalkd_py.server.logging.throttling import DescriptorPressure

Spawn = Callable[[Callable[[], None]], "gevent.Greenlet[[], None]"]
"""Starts a greenlet whose failure ends the server."""


class RoutedConnections:
    """The queue of worker `index`. Calls `on_passed` with the number of connections sent."""

    def __init__(self, index: int, spawn: Spawn, on_passed: Callable[[int], None]) -> None:
        self._full = f"worker {index} has reached its descriptor limit"
        self._spawn = spawn
        self._on_passed = on_passed
        self._fds: deque[int] = deque()
        self._waiting = Event()
        self._pressure = DescriptorPressure()
        self._handover: Handover | None = None
        self._task: gevent.Greenlet[[], None] | None = None

    @property
    def open(self) -> bool:
        """Whether there is a worker to pass connections to."""
        return self._handover is not None

    def free_slots(self) -> int:
        return 0 if self._handover is None else self._handover.free_slots() - len(self._fds)

    def connection_count(self) -> int:
        """Return how many connections the worker has or will get."""
        passed = 0 if self._handover is None else self._handover.connection_count()
        return len(self._fds) + passed

    def add(self, fd: int) -> None:
        """Take over and queue a descriptor."""
        self._fds.append(fd)
        self._waiting.set()

    def attach(self, handover: Handover) -> None:
        self._handover = handover
        self._task = self._spawn(self._run)

    def detach(self) -> int | None:
        """Return how many connections the ended worker was sent; None if there was no worker."""
        if self._handover is None or self._task is None:
            return None
        handover, self._handover = self._handover, None
        # A batch stays queued until it has been sent, so killing the greenlet loses nothing.
        self._task.kill()
        handover.close()
        return handover.passed

    def close(self) -> None:
        self.detach()
        while self._fds:
            os.close(self._fds.popleft())

    def _run(self) -> None:
        while True:
            self._waiting.wait()
            handover = self._handover
            if handover is None:
                return  # detached; a new connection has resumed this greenlet before its kill
            count = min(handover.free_slots(), BATCH)
            if count <= 0:
                self._pressure.pause(self._full)
                continue
            batch = list(islice(self._fds, count))
            if not handover.pass_copies(batch):
                return  # the next process gets the queued connections
            for fd in batch:
                self._fds.popleft()
                os.close(fd)
            if not self._fds:
                self._waiting.clear()
                self._pressure.relieve()
            self._on_passed(len(batch))
