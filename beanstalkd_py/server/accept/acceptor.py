"""Accepts on one listening socket, in batches.

When descriptors are short, clients wait in the kernel's backlog; see DescriptorPressure.
"""

from __future__ import annotations

import errno
import os
from typing import Protocol

from beanstalkd_py.server.accept.admission import Admission
from beanstalkd_py.server.accept.handover import BATCH
from beanstalkd_py.server.accept.listeners import Listener
from beanstalkd_py.server.logging.throttling import OUT_OF_DESCRIPTORS, DescriptorPressure
from beanstalkd_py.server.process.fd_wait import FdWatcher

# Errors of a connection that failed before accept(2), which documents a retry for them.
_FAILED_BEFORE = frozenset(
    (
        *(errno.ECONNABORTED, errno.EINTR, errno.EPERM, errno.EPROTO),
        *(errno.ENETDOWN, errno.ENOPROTOOPT, errno.EHOSTDOWN, errno.ENONET),
        *(errno.EHOSTUNREACH, errno.EOPNOTSUPP, errno.ENETUNREACH),
    )
)


class Receiver(Protocol):
    """Takes accepted connections."""

    def free_slots(self) -> int:
        """Return how many connections the receiver can take now."""

    def send(self, fds: list[int]) -> None:
        """Take over up to BATCH descriptors."""


class Acceptor:
    """Accepts for one receiver. `full` is the reason in the log while the receiver has no slots."""

    def __init__(
        self,
        listener: Listener,
        receiver: Receiver,
        admission: Admission,
        full: str = "descriptor limit reached",
    ) -> None:
        self._full = full
        self._socket = listener.socket
        self._admission = admission
        self._receiver = receiver
        self._pressure = DescriptorPressure()

    def run(self) -> None:
        """Accept until the greenlet is killed."""
        ready = FdWatcher(self._socket.fileno())
        try:
            while True:
                ready.wait()
                self._accept_batch()
        finally:
            ready.close()

    def _accept_batch(self) -> None:
        count = min(self._receiver.free_slots(), BATCH)
        if count <= 0:
            self._pressure.pause(self._full)
            return
        fds: list[int] = []
        reason = self._accept_up_to(fds, count)
        if fds:
            self._receiver.send(fds)
        if reason is not None:
            self._pressure.pause(reason)

    def _accept_up_to(self, fds: list[int], count: int) -> str | None:
        """Append up to `count` accepted descriptors; return the reason if descriptors ran out."""
        # The limit includes refused connections, so that many of them do not block the process.
        for _ in range(count):
            try:
                connection, address = self._socket.accept()
            except BlockingIOError:
                self._pressure.relieve()
                return None
            except OSError as error:
                if error.errno in OUT_OF_DESCRIPTORS:
                    return os.strerror(error.errno)
                if error.errno not in _FAILED_BEFORE:
                    raise
            else:
                if self._admission.admits(connection.family, address, len(fds)):
                    fds.append(connection.detach())
                else:
                    connection.close()
        return None
