"""Copies bytes between a TLS client and the plain socket of its worker.

Each direction is a greenlet that writes everything before it reads more, so a slow side delays only
the other side.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from collections.abc import Callable

import gevent

from beanstalkd_py.server.process.fd_wait import READ, WRITE, FdWatcher

CHUNK_BYTES = 1 << 16
CHUNKS_PER_TURN = 8
"""Chunks before other greenlets run."""
DRAIN_LIMIT_S = 5.0
"""How long a client may take no data after the worker has closed the connection."""
CHECK_S = 1.0
"""Interval of checks whether the worker has closed, for a client that takes no data."""


class End:
    """A non-blocking socket that one greenlet waits for."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._watchers: dict[int, FdWatcher] = {}

    def wait(self, event: int) -> None:
        watcher = self._watchers.get(event)
        if watcher is None:
            watcher = self._watchers[event] = FdWatcher(self.socket.fileno(), event)
        watcher.wait()

    def receive(self) -> bytes:
        """Return the next bytes; none at the end. Raises OSError."""
        while True:
            try:
                return self.socket.recv(CHUNK_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                self.wait(READ)
            except ssl.SSLWantWriteError:
                self.wait(WRITE)

    def send(self, data: bytes) -> None:
        """Send all of it. Raises OSError."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self.socket.send(rest) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                self.wait_writable()
            except ssl.SSLWantReadError:
                self.wait(READ)

    def wait_writable(self) -> None:
        self.wait(WRITE)

    def close(self) -> None:
        """Close the watchers; call it before closing the socket."""
        for watcher in self._watchers.values():
            watcher.close()
        self._watchers.clear()


class _ClientEnd(End):
    """The socket to the client. Has a write timeout once the worker has closed its end."""

    def __init__(
        self, sock: socket.socket, plain: socket.socket, on_drain: Callable[[], None]
    ) -> None:
        super().__init__(sock)
        self._on_drain = on_drain
        self._plain = select.poll()
        self._plain.register(plain, 0)  # reports only that it has been closed

    def wait_writable(self) -> None:
        """Raises TimeoutError."""
        waited_s = 0.0
        while waited_s < DRAIN_LIMIT_S:
            try:
                with gevent.Timeout(CHECK_S):
                    return self.wait(WRITE)
            except gevent.Timeout:
                if self._plain.poll(0):
                    waited_s += CHECK_S
                    self._on_drain()
        raise TimeoutError


class Tunnel:
    """Owns both sockets, which are non-blocking; the TLS handshake is complete.

    `on_drain` is called, perhaps repeatedly, while the client still has to take data of a worker
    that has closed the connection.
    """

    def __init__(
        self, client: ssl.SSLSocket, plain: socket.socket, on_drain: Callable[[], None]
    ) -> None:
        self._client = client
        self._plain = plain
        self._on_drain = on_drain

    def run(self) -> None:
        """Return when the worker has closed its end, or the client is gone."""
        inbound = gevent.spawn(self._copy_inbound)
        ends = (End(self._plain), _ClientEnd(self._client, self._plain, self._on_drain))
        try:
            _copy(*ends)
            # Send close_notify, so that the client can tell the end from a truncation.
            with contextlib.suppress(OSError, ValueError):
                self._client.unwrap()
        except OSError:
            pass  # the client is gone
        finally:
            inbound.kill()
            for end in ends:
                end.close()
            self._client.close()
            self._plain.close()

    def _copy_inbound(self) -> None:
        ends = (End(self._client), End(self._plain))
        try:
            _copy(*ends)
            self._plain.shutdown(socket.SHUT_WR)  # the client may still read
        except OSError:
            # The client is gone. The worker has the data that it sent before.
            with contextlib.suppress(OSError):
                self._plain.shutdown(socket.SHUT_RDWR)
        finally:
            for end in ends:
                end.close()


def _copy(source: End, target: End) -> None:
    """Copy until the end of the source. Raises OSError."""
    chunks = 0
    while data := source.receive():
        target.send(data)
        chunks += 1
        if chunks % CHUNKS_PER_TURN == 0:
            gevent.sleep(0)
