"""Accepted connections without a complete first command, in an epoll set.

The set is edge-triggered, so that a client that stalls in its first line causes no wakeups. The
idle timeout closes connections without data, the send timeout those with a part of a line.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from itertools import takewhile

import gevent

from beanstalkd_py.server.process.fd_wait import FdWatcher

MAX_EVENTS = 256
_EVENTS = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
_ENDED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
MAX_CHECK_S = 1.0
"""The maximum interval of checks for timeouts, because a reload may change the timeouts."""
CHECKS_PER_TIMEOUT = 8


class UnroutedConnections:
    """Connections by descriptor.

    Calls `on_data(fd, ended)` for new data, `ended` if the client will send no more, and
    `on_timeout` with the number of connections that a timeout has closed.
    """

    def __init__(
        self, on_data: Callable[[int, bool], None], on_timeout: Callable[[int], None]
    ) -> None:
        self._on_data = on_data
        self._on_timeout = on_timeout
        self._epoll = select.epoll()
        # The time of the last event by descriptor, in the order of these times.
        self._no_data: dict[int, float] = {}
        self._partial: dict[int, float] = {}
        self.set_timeouts(0.0, 0.0)

    def set_timeouts(self, idle_s: float, send_s: float) -> None:
        """Set and restart the timeouts without data and within the first line; 0 is none."""
        now = time.monotonic()
        self._no_data = dict.fromkeys(self._no_data, now)
        self._partial = dict.fromkeys(self._partial, now)
        self._idle_s, self._send_s = idle_s, send_s
        intervals = [limit_s / CHECKS_PER_TIMEOUT for limit_s in (idle_s, send_s) if limit_s]
        self._check_s = min([MAX_CHECK_S, *intervals])

    def add(self, fd: int) -> None:
        """Take over a descriptor; data that has arrived before causes an event. Raises OSError."""
        self._epoll.register(fd, _EVENTS)
        self._no_data[fd] = time.monotonic()

    def remove(self, fd: int) -> None:
        """Return a descriptor to the caller, still open."""
        # A close would not end the epoll watch, because another process has the connection, too.
        self._epoll.unregister(fd)
        self._discard(fd)

    def _discard(self, fd: int) -> bool:
        """Forget a descriptor; return whether it was registered."""
        return (self._partial.pop(fd, None) or self._no_data.pop(fd, None)) is not None

    def run(self) -> None:
        """Call `on_data` until the greenlet is killed."""
        ready = FdWatcher(self._epoll.fileno())
        try:
            while True:
                ready.wait()
                for fd, events in self._epoll.poll(0, MAX_EVENTS):
                    self._on_data(fd, bool(events & _ENDED))
                    if self._discard(fd):
                        self._partial[fd] = time.monotonic()
        finally:
            ready.close()

    def close_expired(self) -> None:
        """Close connections at their timeouts until the greenlet is killed."""
        while True:
            gevent.sleep(self._check_s)
            expired = _expired(self._no_data, self._idle_s) + _expired(self._partial, self._send_s)
            for fd in expired:
                self.remove(fd)
                os.close(fd)
            if expired:
                self._on_timeout(len(expired))

    def close(self) -> None:
        self._epoll.close()
        for fd in (*self._no_data, *self._partial):
            os.close(fd)
        self._no_data.clear()
        self._partial.clear()


def _expired(since: dict[int, float], limit_s: float) -> list[int]:
    latest = time.monotonic() - limit_s
    return list(takewhile(lambda fd: since[fd] <= latest, since)) if limit_s else []
