"""Connections that have not said yet what they want: an epoll set with nothing else for each.

A connection here is an int. It is watched for edges, so one that stalls in the middle of its first
line wakes nobody until more of it comes. Those that say nothing, or do not finish their first line,
are given up in time, if there is one. Must not know what a first line means.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable

import gevent

from beanstalkd_py.server.accept.timer_wheel import SPANS, TimerWheel
from beanstalkd_py.server.process.fd_wait import FdWatcher

EVENTS_AT_ONCE = 256
_WANTED = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
_ENDED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR

Heard = Callable[[int, bool], None]
"""Is told of a descriptor with news, and whether its client will send no more."""


LONGEST_LOOK_S = 1.0
"""Between two looks for those to be given up; options may have changed meanwhile."""


class UnroutedConnections:
    """The silent connections. `heard` decides about each that speaks or ends.

    `given_up` is told how many were closed because their time was over.
    """

    def __init__(self, heard: Heard, given_up: Callable[[int], None]) -> None:
        self._heard = heard
        self._given_up = given_up
        self._epoll = select.epoll()
        self._silent = TimerWheel()
        self._begun = TimerWheel()
        self._look_s = LONGEST_LOOK_S

    def __len__(self) -> int:
        return len(self._silent) + len(self._begun)

    def limit(self, idle_s: float, send_s: float) -> None:
        """How long one may say nothing, and pause in its first line; 0: for ever. Seconds."""
        now = time.monotonic()
        self._silent.limit(idle_s, now)
        self._begun.limit(send_s, now)
        spans = [limit_s / SPANS for limit_s in (idle_s, send_s) if limit_s]
        self._look_s = min([LONGEST_LOOK_S, *spans])

    def add(self, fd: int) -> None:
        """Takes over a descriptor. What has arrived already counts as news. Raises OSError."""
        self._epoll.register(fd, _WANTED)
        self._silent.add(fd, time.monotonic())

    def remove(self, fd: int) -> None:
        """Gives a descriptor back, still open."""
        # Closing it would not end the watch, as another process is to have the connection.
        self._epoll.unregister(fd)
        if not self._begun.discard(fd):
            self._silent.discard(fd)

    def run(self) -> None:
        """Tells of news until its greenlet is killed."""
        ready = FdWatcher(self._epoll.fileno())
        try:
            while True:
                ready.wait()
                for fd, events in self._epoll.poll(0, EVENTS_AT_ONCE):
                    self._heard(fd, bool(events & _ENDED))
                    self._note_beginning(fd)
        finally:
            ready.close()

    def watch_time(self) -> None:
        """Closes those whose time is over, until its greenlet is killed."""
        while True:
            gevent.sleep(self._look_s)
            now = time.monotonic()
            old = self._silent.take_old(now) | self._begun.take_old(now)
            for fd in old:
                # As in remove: a descriptor that is on its way elsewhere would stay watched.
                self._epoll.unregister(fd)
                os.close(fd)
            if old:
                self._given_up(len(old))

    def _note_beginning(self, fd: int) -> None:
        """One that has been heard and is still here has begun to say something."""
        if self._begun.discard(fd) or self._silent.discard(fd):
            self._begun.add(fd, time.monotonic())

    def close(self) -> None:
        """Closes every connection."""
        self._epoll.close()
        for fd in self._silent.all() | self._begun.all():
            os.close(fd)
        self._silent, self._begun = TimerWheel(), TimerWheel()
