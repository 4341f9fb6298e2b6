"""Accepts on one listening socket and hands the connections over, in batches.

When descriptors run out, here or at the worker, clients are left in the kernel's backlog for a
moment: no spinning, one line of log per episode. Must not know protocol, workers or placement.
"""

from __future__ import annotations

import errno
import os
import time

import gevent

from beanstalkd_py.server.handover import BATCH, Handover
from beanstalkd_py.server.listeners import Listener
from beanstalkd_py.server.logs import LOGGER
from beanstalkd_py.server.waiting import Readiness

PAUSE_S = 0.05
QUIET_S = 10.0
"""A new episode within this time of the last line is the same story and stays unlogged."""

_EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

# The connection failed before it was accepted; accept(2) asks to go on with the next.
_GONE_BEFORE = frozenset(
    (
        errno.ECONNABORTED,
        errno.EINTR,
        errno.EPERM,
        errno.EPROTO,
        errno.ENETDOWN,
        errno.ENOPROTOOPT,
        errno.EHOSTDOWN,
        errno.ENONET,
        errno.EHOSTUNREACH,
        errno.EOPNOTSUPP,
        errno.ENETUNREACH,
    )
)


class Shortage:
    """An episode without room: it begins with a pause and ends when nobody waits any more."""

    def __init__(self) -> None:
        self._lasting = False
        self._logged_mono = -QUIET_S

    def pause(self, reason: str) -> None:
        """Sleeps a moment; the first time in an episode says why."""
        now = time.monotonic()
        if not self._lasting and now - self._logged_mono >= QUIET_S:
            LOGGER.warning("new connections have to wait: %s", reason)
            self._logged_mono = now
        self._lasting = True
        gevent.sleep(PAUSE_S)

    def over(self) -> None:
        """Everyone who waited has been accepted."""
        if self._lasting:
            LOGGER.info("new connections are accepted again")
        self._lasting = False


class Acceptor:
    """One listening socket and the worker that gets its connections."""

    def __init__(self, listener: Listener, handover: Handover) -> None:
        self._socket = listener.socket
        self._handover = handover
        self._shortage = Shortage()

    def run(self) -> None:
        """Accepts until its greenlet is killed."""
        ready = Readiness(self._socket.fileno())
        try:
            while True:
                ready.wait()
                self._accept_batch()
        finally:
            ready.close()

    def _accept_batch(self) -> None:
        room = min(self._handover.room(), BATCH)
        if room <= 0:
            self._shortage.pause("the worker holds as many as its descriptors allow")
            return
        fds: list[int] = []
        reason = self._collect(fds, room)
        if fds:
            self._handover.send(fds)
        if reason is not None:
            self._shortage.pause(reason)

    def _collect(self, fds: list[int], room: int) -> str | None:
        """Adds up to `room` accepted descriptors; the reason if it had to give up early."""
        while len(fds) < room:
            try:
                connection, _ = self._socket.accept()
            except BlockingIOError:
                self._shortage.over()
                return None
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    return os.strerror(error.errno)
                if error.errno not in _GONE_BEFORE:
                    raise
            else:
                fds.append(connection.detach())
        return None
