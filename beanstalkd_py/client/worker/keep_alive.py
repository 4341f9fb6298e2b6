"""Touches of the jobs whose handlers run, by one thread for all connections of a process."""

from __future__ import annotations

import contextlib
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
        """Touch the job until the block ends; the first touch is due a part of the TTR from now."""
        held = _Held(delivery, touch, _next_touch(delivery))
        with self._changed:
            self._held.append(held)
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
                if not due:
                    self._changed.wait(self._pause_s())
            # Without the lock: a server that is slow must not keep handlers from their start.
            for held in due:
                if held.touch():
                    held.due_mono = _next_touch(held.delivery)
                else:
                    held.delivery.lost.set()
                    with self._changed:
                        self._drop(held)

    def _pause_s(self) -> float | None:
        if self._closed:
            return 0
        if not self._held:
            return None
        return max(min(held.due_mono for held in self._held) - time.monotonic(), 0)

    def _drop(self, held: _Held) -> None:
        with contextlib.suppress(ValueError):
            self._held.remove(held)


def _next_touch(delivery: Delivery) -> float:
    return time.monotonic() + delivery.ttr / TOUCHES_PER_TTR
