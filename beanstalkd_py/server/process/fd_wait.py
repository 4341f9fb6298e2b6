"""Waiting for descriptors in a greenlet, without the import of gevent.socket, which is slow."""

from __future__ import annotations

import socket

from gevent import get_hub

READ = 1
WRITE = 2


class FdWatcher:
    """Waits for events of one descriptor. Close the watcher before the descriptor."""

    def __init__(self, fd: int, events: int = READ) -> None:
        self._hub = get_hub()
        self._watcher = self._hub.loop.io(fd, events)

    def wait(self) -> None:
        self._hub.wait(self._watcher)

    def close(self) -> None:
        self._watcher.close()


class WaitingSocket:
    """A non-blocking socket whose methods block one greenlet and not the process."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._watchers: dict[int, FdWatcher] = {}

    def wait(self, event: int) -> None:
        watcher = self._watchers.get(event)
        if watcher is None:
            watcher = self._watchers[event] = FdWatcher(self.socket.fileno(), event)
        watcher.wait()

    def wait_after(self, error: OSError, event: int) -> None:
        """Wait if an operation would have blocked; else raise its error."""
        if not isinstance(error, BlockingIOError):
            raise error
        self.wait(event)

    def receive(self, most: int) -> bytes:
        """Return the next bytes, or no bytes at the end. Raises OSError."""
        while True:
            try:
                return self.socket.recv(most)
            except OSError as error:
                self.wait_after(error, READ)

    def send(self, data: bytes) -> None:
        """Send all bytes. Raises OSError."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self.socket.send(rest) :]
            except OSError as error:
                self.wait_after(error, WRITE)

    def close(self) -> None:
        """Close the watchers; call it before closing the socket."""
        for watcher in self._watchers.values():
            watcher.close()
        self._watchers.clear()
