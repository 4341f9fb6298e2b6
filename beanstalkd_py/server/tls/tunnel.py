"""One connection of a TLS client, and the plain socket by which a worker has it: bytes both ways.

Each way is a greenlet that reads no further before it has written, so whoever is slow slows down
the other side and nobody else. Must not know where connections come from or who has the other end.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from collections.abc import Callable

import gevent

from beanstalkd_py.server.process.fd_wait import READ, WRITE, FdWatcher

PIECE_BYTES = 1 << 16
PIECES_PER_TURN = 8
"""Then others have theirs."""
LAST_WORDS_S = 5.0
"""So long a client may take nothing of what a worker has left for it when it closed."""
LOOK_S = 1.0
"""Between two looks at whether the worker has closed, for a client that takes nothing."""


class _End:
    """A non-blocking socket that one greenlet waits for."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._watchers: dict[int, FdWatcher] = {}

    def wait(self, event: int) -> None:
        """Until the socket is READ- or WRITE-able."""
        watcher = self._watchers.get(event)
        if watcher is None:
            watcher = self._watchers[event] = FdWatcher(self.socket.fileno(), event)
        watcher.wait()

    def receive(self) -> bytes:
        """The next bytes; none when the other side has said that it sends no more. OSError."""
        while True:
            try:
                return self.socket.recv(PIECE_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                self.wait(READ)
            except ssl.SSLWantWriteError:
                self.wait(WRITE)

    def send(self, data: bytes) -> None:
        """All of it. Raises OSError."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self.socket.send(rest) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                self.wait_for_room()
            except ssl.SSLWantReadError:
                self.wait(READ)

    def wait_for_room(self) -> None:
        """Until it takes more."""
        self.wait(WRITE)

    def close(self) -> None:
        """Gives the watchers back. The socket is closed after that."""
        for watcher in self._watchers.values():
            watcher.close()
        self._watchers.clear()


class _ClientEnd(_End):
    """The way to the client, who is waited for as long as the worker keeps the connection."""

    def __init__(
        self, sock: socket.socket, plain: socket.socket, outlives: Callable[[], None]
    ) -> None:
        super().__init__(sock)
        self._outlives = outlives
        self._plain = select.poll()
        self._plain.register(plain, 0)  # only whether it has been closed

    def wait_for_room(self) -> None:
        """Until it takes more. Raises TimeoutError when nobody wants to wait any longer."""
        waited_s = 0.0
        while waited_s < LAST_WORDS_S:
            try:
                with gevent.Timeout(LOOK_S):
                    return self.wait(WRITE)
            except gevent.Timeout:
                if self._plain.poll(0):
                    waited_s += LOOK_S
                    self._outlives()
        raise TimeoutError


class Tunnel:
    """Both sockets are its own, non-blocking, and the TLS handshake is done.

    `outlives` is called, perhaps more than once, when the worker has closed and the client is
    still to take what was left for it.
    """

    def __init__(
        self, client: ssl.SSLSocket, plain: socket.socket, outlives: Callable[[], None]
    ) -> None:
        self._client = client
        self._plain = plain
        self._outlives = outlives

    def run(self) -> None:
        """Returns when the worker has closed its end, or the client has gone."""
        inwards = gevent.spawn(self._inwards)
        ends = (_End(self._plain), _ClientEnd(self._client, self._plain, self._outlives))
        try:
            _carry(*ends)
            # The client is told that this is the end, and no accident. It need not answer.
            with contextlib.suppress(OSError, ValueError):
                self._client.unwrap()
        except OSError:
            pass  # the client has gone; so does the connection
        finally:
            inwards.kill()
            for end in ends:
                end.close()
            self._client.close()
            self._plain.close()

    def _inwards(self) -> None:
        ends = (_End(self._client), _End(self._plain))
        try:
            _carry(*ends)
            self._plain.shutdown(socket.SHUT_WR)  # it may go on reading
        except OSError:
            # It has gone without a word. What it has sent before is in the worker's hands.
            with contextlib.suppress(OSError):
                self._plain.shutdown(socket.SHUT_RDWR)
        finally:
            for end in ends:
                end.close()


def _carry(source: _End, target: _End) -> None:
    """To the end of what comes. Raises OSError."""
    pieces = 0
    while data := source.receive():
        target.send(data)
        pieces += 1
        if pieces % PIECES_PER_TURN == 0:
            gevent.sleep(0)
