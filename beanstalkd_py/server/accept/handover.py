"""Passes accepted connections to a worker: descriptors by SCM_RIGHTS over a Unix socket.

Also answers how many connections the worker still has room for. Must not know where connections
come from or which worker should have them.
"""

from __future__ import annotations

import os
import socket
from typing import Any

import gevent

from beanstalkd_py.server.process.descriptor_passing import TRANSIENT, scm_rights
from beanstalkd_py.server.process.fd_wait import WRITE, FdWatcher
from beanstalkd_py.server.process.shared_memory import open_connections

BATCH = 64
"""Descriptors in one message; the kernel takes 253."""
RESERVED_DESCRIPTORS = 64
"""What a worker keeps for its files, channels and epoll sets."""
RETRY_S = 0.02


class Handover:
    """The way to one worker. `counters` is its bs_counters, `capacity` how many it can hold."""

    def __init__(self, connections: socket.socket, counters: Any, capacity: int) -> None:
        self._socket = connections
        self._counters = counters
        self._capacity = max(1, capacity)
        # Its predecessor's, if there was one, are all adopted or written off.
        self._passed = int(counters.total_connections)
        self._writable = FdWatcher(connections.fileno(), WRITE)

    @property
    def passed(self) -> int:
        """How many connections this worker and its predecessors have been sent."""
        return self._passed

    def load(self) -> int:
        """How many connections the worker holds, with those still on their way."""
        on_the_way = self._passed - int(self._counters.total_connections)
        return open_connections(self._counters) + on_the_way

    def room(self) -> int:
        """How many more connections the worker can hold."""
        return self._capacity - self.load()

    def send(self, fds: list[int]) -> None:
        """Passes up to BATCH descriptors and closes them here, waiting while the way is full.

        A worker that has gone is no error: the connections end, as they would have with it.
        """
        try:
            self.pass_on(fds)
        finally:
            for fd in fds:
                os.close(fd)

    def pass_on(self, fds: list[int]) -> bool:
        """As `send`, but leaves the closing to the caller; False if the worker has gone."""
        try:
            while not self._try_send(fds):
                pass
        except (BrokenPipeError, ConnectionResetError):
            return False
        self._passed += len(fds)
        return True

    def close(self) -> None:
        """Gives up the way. The socket stays the caller's."""
        self._writable.close()

    def _try_send(self, fds: list[int]) -> bool:
        # A byte for each, so that the worker knows how many it could not receive.
        try:
            self._socket.sendmsg([bytes(len(fds))], scm_rights(*fds))
        except BlockingIOError:
            self._writable.wait()
            return False
        except OSError as error:
            if error.errno not in TRANSIENT:
                raise
            gevent.sleep(RETRY_S)
            return False
        return True
