"""Passes accepted connections to a process by SCM_RIGHTS, and counts its free slots."""

from __future__ import annotations

import os
import socket
from typing import Any

import gevent
from gevent.lock import Semaphore

from beanstalkd_py.server.process.channel import TRANSIENT
from beanstalkd_py.server.process.fd_wait import WRITE, FdWatcher
from beanstalkd_py.server.process.shared_memory import open_connections

BATCH = 64
"""Descriptors in one message; the kernel accepts 253."""
RESERVED_DESCRIPTORS = 64
"""Descriptors of a worker for its files, channels and epoll sets."""
DESCRIPTORS_PER_LINK = 2
"""A socket to another worker, and its doorbell."""
RETRY_S = 0.02
CERTIFICATES = b"certificates"
"""The data of a message with the file of certificates for the connections of later messages."""


class Handover:
    """The socket to one worker, its bs_counters, and the number of connections it can hold."""

    def __init__(self, connections: socket.socket, counters: Any, capacity: int) -> None:
        self._socket = connections
        self._counters = counters
        self._capacity = max(1, capacity)
        # The parent has set total_connections to the connections that earlier processes were sent.
        self._passed = int(counters.total_connections)
        self._writable = FdWatcher(connections.fileno(), WRITE)
        self._sending = Semaphore()  # a watcher serves one greenlet at a time

    @property
    def passed(self) -> int:
        """How many connections this worker and its predecessors were sent."""
        return self._passed

    def connection_count(self) -> int:
        """Return how many connections the worker has, including those in flight."""
        in_flight = self._passed - int(self._counters.total_connections)
        return open_connections(self._counters) + in_flight

    def free_slots(self) -> int:
        return self._capacity - self.connection_count()

    def send(self, fds: list[int]) -> None:
        """Pass up to BATCH descriptors and close them here, waiting while the socket is full.

        If the worker is gone, the connections are closed.
        """
        try:
            self.pass_copies(fds)
        finally:
            for fd in fds:
                os.close(fd)

    def pass_copies(self, fds: list[int]) -> bool:
        """Pass descriptors that the caller still owns; return False if the worker is gone."""
        # One byte per descriptor, so that the process can count those that it failed to receive.
        if not self._send(bytes(len(fds)), fds):
            return False
        self._passed += len(fds)
        return True

    def pass_certificates(self, fd: int) -> None:
        """Pass a file that the caller still owns to a TLS process."""
        self._send(CERTIFICATES, [fd])

    def close(self) -> None:
        """Close the watcher. The caller owns the socket."""
        self._writable.close()

    def _send(self, data: bytes, fds: list[int]) -> bool:
        """Wait while the socket is full; return False if the process is gone."""
        try:
            with self._sending:
                while not self._try_send(data, fds):
                    pass
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def _try_send(self, data: bytes, fds: list[int]) -> bool:
        try:
            socket.send_fds(self._socket, [data], fds)
        except BlockingIOError:
            self._writable.wait()
            return False
        except OSError as error:
            if error.errno not in TRANSIENT:
                raise
            gevent.sleep(RETRY_S)
            return False
        return True
