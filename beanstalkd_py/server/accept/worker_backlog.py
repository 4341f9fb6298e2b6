"""Connections that wait for one worker, and the greenlet that passes them on.

One per worker, so that a worker which is full, stuck or being restarted keeps nobody waiting but
those that are meant for it. Must not know why they are meant for it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from itertools import islice

import gevent
from gevent.event import Event

from beanstalkd_py.server.accept.handover import BATCH, Handover
from beanstalkd_py.server.logging.descriptor_pressure import DescriptorPressure

Spawn = Callable[[Callable[[], None]], "gevent.Greenlet[[], None]"]
"""Starts a greenlet whose failure is the server's."""


class WorkerBacklog:
    """The descriptors for worker `index`, in order. `passed` is told how many have left."""

    def __init__(self, index: int, spawn: Spawn, passed: Callable[[int], None]) -> None:
        self._full = f"worker {index} holds as many as its descriptors allow"
        self._spawn = spawn
        self._passed = passed
        self._fds: deque[int] = deque()
        self._waiting = Event()
        self._shortage = DescriptorPressure()
        self._handover: Handover | None = None
        self._task: gevent.Greenlet[[], None] | None = None

    @property
    def open(self) -> bool:
        """Whether there is a worker to pass connections to."""
        return self._handover is not None

    def room(self) -> int:
        """How many more connections the worker can hold; none while there is no worker."""
        return 0 if self._handover is None else self._handover.room() - len(self._fds)

    def load(self) -> int:
        """How many connections the worker holds or is about to."""
        return len(self._fds) + (0 if self._handover is None else self._handover.load())

    def add(self, fd: int) -> None:
        """Appends a descriptor, which is the backlog's from now on."""
        self._fds.append(fd)
        self._waiting.set()

    def attach(self, handover: Handover) -> None:
        """A worker is there; those that wait are passed on."""
        self._handover = handover
        self._task = self._spawn(self._run)

    def detach(self) -> int | None:
        """The worker has gone: how many connections it was sent, None if there was no worker."""
        if self._handover is None or self._task is None:
            return None
        handover, self._handover = self._handover, None
        # A batch stays in the queue until it has left, so nothing is lost with the greenlet.
        self._task.kill()
        handover.close()
        return handover.passed

    def close(self) -> None:
        """Closes every connection that waits."""
        self.detach()
        while self._fds:
            os.close(self._fds.popleft())

    def _run(self) -> None:
        while True:
            self._waiting.wait()
            handover = self._handover
            if handover is None:
                return  # detached, and woken by a connection before the kill
            room = min(handover.room(), BATCH)
            if room <= 0:
                self._shortage.pause(self._full)
                continue
            batch = list(islice(self._fds, room))
            if not handover.pass_on(batch):
                return  # those that wait go to the next process
            for fd in batch:
                self._fds.popleft()
                os.close(fd)
            if not self._fds:
                self._waiting.clear()
                self._shortage.over()
            self._passed(len(batch))
