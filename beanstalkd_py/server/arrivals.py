"""Connections that have not said yet what they want: an epoll set with nothing else for each.

A connection here is an int. It is watched for edges, so one that stalls in the middle of its first
line wakes nobody until more of it comes. Must not know what a first line means.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable

from beanstalkd_py.server.waiting import Readiness

EVENTS_AT_ONCE = 256
_WANTED = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
_ENDED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR

Heard = Callable[[int, bool], None]
"""Is told of a descriptor with news, and whether its client will send no more."""


class Arrivals:
    """The silent connections. `heard` decides about each that speaks or ends."""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard
        self._epoll = select.epoll()
        self._fds: set[int] = set()

    def __len__(self) -> int:
        return len(self._fds)

    def add(self, fd: int) -> None:
        """Takes over a descriptor. What has arrived already counts as news. Raises OSError."""
        self._epoll.register(fd, _WANTED)
        self._fds.add(fd)

    def remove(self, fd: int) -> None:
        """Gives a descriptor back, still open."""
        # Closing it would not end the watch, as another process is to have the connection.
        self._epoll.unregister(fd)
        self._fds.remove(fd)

    def run(self) -> None:
        """Tells of news until its greenlet is killed."""
        ready = Readiness(self._epoll.fileno())
        try:
            while True:
                ready.wait()
                for fd, events in self._epoll.poll(0, EVENTS_AT_ONCE):
                    self._heard(fd, bool(events & _ENDED))
        finally:
            ready.close()

    def close(self) -> None:
        """Closes every connection."""
        self._epoll.close()
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()
