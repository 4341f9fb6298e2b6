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
from functools import partial

import gevent

from beanstalkd_py.server.process.fd_wait import READ, WRITE, WaitingSocket

CHUNK_BYTES = 1 << 16
CHUNKS_PER_TURN = 8
"""The number of chunks after which other greenlets run."""
DRAIN_LIMIT_S = 5.0
"""How long a client may read nothing after the worker has closed the connection."""
CHECK_S = 1.0
"""The interval of checks for the worker's close while a client reads nothing."""


class TlsSocket(WaitingSocket):
    """A TLS connection. Waits for the event that TLS requires."""

    def wait_after(self, error: OSError, event: int) -> None:
        if isinstance(error, ssl.SSLWantReadError):
            self.wait(READ)
        elif isinstance(error, ssl.SSLWantWriteError):
            self.wait(WRITE)
        else:
            super().wait_after(error, event)


class _TlsSender(TlsSocket):
    """A TLS connection with a write timeout once the worker has closed its end of `plain`."""

    def __init__(
        self, sock: socket.socket, plain: socket.socket, on_drain: Callable[[], None]
    ) -> None:
        super().__init__(sock)
        self._on_drain = on_drain
        self._plain = select.poll()
        self._plain.register(plain, 0)  # reports only a close

    def wait(self, event: int) -> None:
        """Raises TimeoutError."""
        if event == READ:
            return super().wait(event)
        waited_s = 0.0
        while waited_s < DRAIN_LIMIT_S:
            try:
                with gevent.Timeout(CHECK_S):
                    return super().wait(event)
            except gevent.Timeout:
                if self._plain.poll(0):
                    waited_s += CHECK_S
                    self._on_drain()
        raise TimeoutError


def run_tunnel(client: ssl.SSLSocket, plain: socket.socket, on_drain: Callable[[], None]) -> None:
    """Copy until the worker closes its end or the client is gone; close both sockets.

    The sockets are non-blocking, and the TLS handshake is complete. Calls `on_drain`, perhaps
    repeatedly, while the client still has to read data of a worker that has closed its end.
    """
    inbound = gevent.spawn(partial(_copy_inbound, client, plain))
    source, target = WaitingSocket(plain), _TlsSender(client, plain, on_drain)
    try:
        _copy(source, target)
        # Send close_notify, so that the client can distinguish the end from a truncation.
        with contextlib.suppress(OSError, ValueError):
            client.unwrap()
    except OSError:
        pass  # the client is gone
    finally:
        inbound.kill()
        source.close()
        target.close()
        client.close()
        plain.close()


def _copy_inbound(client: ssl.SSLSocket, plain: socket.socket) -> None:
    source, target = TlsSocket(client), WaitingSocket(plain)
    try:
        _copy(source, target)
        plain.shutdown(socket.SHUT_WR)  # the client may still read
    except OSError:
        # The client is gone. The worker has received its earlier data.
        with contextlib.suppress(OSError):
            plain.shutdown(socket.SHUT_RDWR)
    finally:
        source.close()
        target.close()


def _copy(source: WaitingSocket, target: WaitingSocket) -> None:
    """Copy until the end of the source. Raises OSError."""
    chunks = 0
    while data := source.receive(CHUNK_BYTES):
        target.send(data)
        chunks += 1
        if chunks % CHUNKS_PER_TURN == 0:
            gevent.sleep(0)
