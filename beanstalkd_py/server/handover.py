"""Passes accepted connections to a worker: descriptors by SCM_RIGHTS over a Unix socket.

The copy here is closed as soon as the message is out. Also answers how many connections the worker
still has room for. Must not know where connections come from or which worker should have them.
"""

from __future__ import annotations

import array
import errno
import os
import socket
from typing import Any

import gevent

from beanstalkd_py.server.waiting import WRITE, Readiness

BATCH = 64
"""Descriptors in one message; the kernel takes 253."""
RESERVED_DESCRIPTORS = 64
"""What a worker keeps for its files, channels and epoll sets."""
RETRY_S = 0.02

# Too many descriptors on their way, or no memory for the message: both pass.
_TRANSIENT = frozenset((errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM))


class Handover:
    """The way to one worker. `counters` is its bs_counters, `descriptors` its RLIMIT_NOFILE."""

    def __init__(self, connections: socket.socket, counters: Any, descriptors: int) -> None:
        self._socket = connections
        self._counters = counters
        self._capacity = max(1, descriptors - RESERVED_DESCRIPTORS)
        self._passed = 0
        self._writable = Readiness(connections.fileno(), WRITE)

    def room(self) -> int:
        """How many more connections the worker can hold, counting those still on their way."""
        return self._capacity - (self._passed - int(self._counters.closed_connections))

    def send(self, fds: list[int]) -> None:
        """Passes up to BATCH descriptors and closes them here, waiting while the way is full.

        A worker that has gone is no error: the connections end, as they would have with it.
        """
        try:
            while not self._try_send(fds):
                pass
            self._passed += len(fds)
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            for fd in fds:
                os.close(fd)

    def _try_send(self, fds: list[int]) -> bool:
        # A byte for each, so that the worker knows how many it could not receive.
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        try:
            self._socket.sendmsg([bytes(len(fds))], ancillary)
        except BlockingIOError:
            self._writable.wait()
            return False
        except OSError as error:
            if error.errno not in _TRANSIENT:
                raise
            gevent.sleep(RETRY_S)
            return False
        return True
