"""Accepted connections without a complete first command, in an epoll set.

Edge-triggered, so a client that stalls in its first line causes no wakeups. Connections are closed
at the idle timeout, and at the send timeout once they have sent a part of a line.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable

import gevent

from beanstalkd_py.server.accept.timer_wheel import BUCKETS, TimerWheel
from beanstalkd_py.server.process.fd_wait import FdWatcher

MAX_EVENTS = 256
_EVENTS = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
_ENDED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
LONGEST_CHECK_S = 1.0
"""The longest time between two checks for timeouts, because a reload may change them."""


class UnroutedConnections:
    """Connections by descriptor.

    `on_data(fd, ended)` is called for new data; `ended`: the client will send no more.
    `on_timeout` is called with the number of connections that were closed at a timeout.
    """

    def __init__(
        self, on_data: Callable[[int, bool], None], on_timeout: Callable[[int], None]
    ) -> None:
        self._on_data = on_data
        self._on_timeout = on_timeout
        self._epoll = select.epoll()
        self._no_data = TimerWheel()
        self._partial = TimerWheel()
        self._check_s = LONGEST_CHECK_S

    def __len__(self) -> int:
        return len(self._no_data) + len(self._partial)

    def set_timeouts(self, idle_s: float, send_s: float) -> None:
        """Set the timeouts without data and within the first line; 0 is none."""
        now = time.monotonic()
        self._no_data.set_limit(idle_s, now)
        self._partial.set_limit(send_s, now)
        widths = [limit_s / BUCKETS for limit_s in (idle_s, send_s) if limit_s]
        self._check_s = min([LONGEST_CHECK_S, *widths])

    def add(self, fd: int) -> None:
        """Take over a descriptor; data that has arrived causes an event. Raises OSError."""
        self._epoll.register(fd, _EVENTS)
        self._no_data.add(fd, time.monotonic())

    def remove(self, fd: int) -> None:
        """Return a descriptor to the caller, still open."""
        # Closing it would not end the watch, because another process gets the connection.
        self._epoll.unregister(fd)
        if not self._partial.discard(fd):
            self._no_data.discard(fd)

    def run(self) -> None:
        """Call `on_data` until the greenlet is killed."""
        ready = FdWatcher(self._epoll.fileno())
        try:
            while True:
                ready.wait()
                for fd, events in self._epoll.poll(0, MAX_EVENTS):
                    self._on_data(fd, bool(events & _ENDED))
                    if self._partial.discard(fd) or self._no_data.discard(fd):
                        self._partial.add(fd, time.monotonic())
        finally:
            ready.close()

    def close_expired(self) -> None:
        """Close connections at their timeouts until the greenlet is killed."""
        while True:
            gevent.sleep(self._check_s)
            now = time.monotonic()
            expired = self._no_data.take_expired(now) | self._partial.take_expired(now)
            for fd in expired:
                # As in remove: a descriptor that is in flight elsewhere would stay watched.
                self._epoll.unregister(fd)
                os.close(fd)
            if expired:
                self._on_timeout(len(expired))

    def close(self) -> None:
        """Close every connection."""
        self._epoll.close()
        for fd in self._no_data.all() | self._partial.all():
            os.close(fd)
        self._no_data, self._partial = TimerWheel(), TimerWheel()
