"""Waiting for a descriptor in a greenlet, without the import of gevent.socket, which is slow."""

from __future__ import annotations

from gevent import get_hub

READ = 1
WRITE = 2


class FdWatcher:
    """Waits for one descriptor any number of times. Close it before the descriptor."""

    def __init__(self, fd: int, events: int = READ) -> None:
        self._hub = get_hub()
        self._watcher = self._hub.loop.io(fd, events)

    def wait(self) -> None:
        self._hub.wait(self._watcher)

    def close(self) -> None:
        self._watcher.close()
