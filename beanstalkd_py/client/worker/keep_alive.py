"""A thread that touches the jobs of all running handlers of a process."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from beanstalkd_py.client.worker.events import Delivery

TOUCHES_PER_TTR = 3

Touch = Callable[[], bool]
"""Touches a job; returns False if it is lost."""


@dataclass(slots=True, eq=False)
class _Held:
    delivery: Delivery
    touch: Touch
    due_mono: float


class KeepAlive:
    """Touches each held job three times in its TTR until it is lost or its handler ends."""

    def __init__(self) -> None:
        self._held: list[_Held] = []
        self._changed = threading.Condition()
        self._closed = False
        self._wake_mono = math.inf
        self._thread = threading.Thread(target=self._run, name="keep-alive", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread without waiting for it."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    @contextlib.contextmanager
    def holding(self, delivery: Delivery, touch: Touch) -> Iterator[None]:
        """Touch the job until the block ends, first after a third of the TTR."""
        held = _Held(delivery, touch, _next_touch(delivery))
        with self._changed:
            self._held.append(held)
            # Wake the thread only if needed, because this takes longer than a short handler.
            if held.due_mono < self._wake_mono:
                self._wake_mono = held.due_mono
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._drop(held)

    def _run(self) -> None:
        while not self._closed:
            with self._changed:
                due = [held for held in self._held if held.due_mono <= time.monotonic()]
                if not due and not self._closed:
                    self._sleep()
            # Do not hold the lock, because a slow server must not delay the start of handlers.
            for held in due:
                if held.touch():
                    held.due_mono = _next_touch(held.delivery)
                else:
                    held.delivery.lost.set()
                    with self._changed:
                        self._drop(held)

    def _sleep(self) -> None:
        """Wait until a touch may be due. The wake time may be that of a job that has ended."""
        now_mono = time.monotonic()
        due_mono = min((held.due_mono for held in self._held), default=math.inf)
        if due_mono < math.inf or self._wake_mono <= now_mono:
            self._wake_mono = due_mono
        self._changed.wait(min(self._wake_mono - now_mono, threading.TIMEOUT_MAX))

    def _drop(self, held: _Held) -> None:
        with contextlib.suppress(ValueError):
            self._held.remove(held)


def _next_touch(delivery: Delivery) -> float:
    return time.monotonic() + delivery.ttr / TOUCHES_PER_TTR
