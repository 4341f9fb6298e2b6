"""Accepts on one listening socket and hands the connections over, in batches.

When descriptors run out, here or where the connections go, clients are left in the kernel's
backlog for a moment: no spinning, one line of log per episode. Must not know protocol, workers or
placement.
"""

from __future__ import annotations

import errno
import os
from typing import Protocol

from beanstalkd_py.server.accept.admission import Admission
from beanstalkd_py.server.accept.handover import BATCH
from beanstalkd_py.server.accept.listeners import Listener
from beanstalkd_py.server.logging.descriptor_pressure import DescriptorPressure
from beanstalkd_py.server.process.fd_wait import FdWatcher

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


class Receiver(Protocol):
    """Whoever gets the accepted connections."""

    def room(self) -> int:
        """How many it takes now."""

    def send(self, fds: list[int]) -> None:
        """Takes up to BATCH descriptors, which are its own from now on."""


class Acceptor:
    """One listening socket, who gets its connections, and which of them.

    `full` says why connections wait while the receiver has no room.
    """

    def __init__(
        self,
        listener: Listener,
        receiver: Receiver,
        gate: Admission,
        full: str = "there are as many as the descriptors allow",
    ) -> None:
        self._full = full
        self._socket = listener.socket
        self._gate = gate
        self._receiver = receiver
        self._shortage = DescriptorPressure()

    def run(self) -> None:
        """Accepts until its greenlet is killed."""
        ready = FdWatcher(self._socket.fileno())
        try:
            while True:
                ready.wait()
                self._accept_batch()
        finally:
            ready.close()

    def _accept_batch(self) -> None:
        room = min(self._receiver.room(), BATCH)
        if room <= 0:
            self._shortage.pause(self._full)
            return
        fds: list[int] = []
        reason = self._collect(fds, room)
        if fds:
            self._receiver.send(fds)
        if reason is not None:
            self._shortage.pause(reason)

    def _collect(self, fds: list[int], room: int) -> str | None:
        """Adds up to `room` accepted descriptors; the reason if it had to give up early."""
        # Also a bound for those that the gate turns away, or a flood of them would never end.
        for _ in range(room):
            try:
                connection, address = self._socket.accept()
            except BlockingIOError:
                self._shortage.over()
                return None
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    return os.strerror(error.errno)
                if error.errno not in _GONE_BEFORE:
                    raise
            else:
                if self._gate.admits(connection.family, address, len(fds)):
                    fds.append(connection.detach())
                else:
                    connection.close()
        return None
