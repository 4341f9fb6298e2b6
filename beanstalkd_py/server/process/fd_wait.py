"""Waiting for a descriptor in a greenlet.

gevent's own socket module would do, but importing it brings ssl-sized company; the start has to
stay quick. Must not know what is waited for.
"""

from __future__ import annotations

from gevent import get_hub

READ = 1
WRITE = 2


class FdWatcher:
    """Waits for one descriptor again and again. Close it before the descriptor."""

    def __init__(self, fd: int, events: int = READ) -> None:
        self._hub = get_hub()
        self._watcher = self._hub.loop.io(fd, events)

    def wait(self) -> None:
        """Returns when the descriptor is ready; other greenlets run meanwhile."""
        self._hub.wait(self._watcher)

    def close(self) -> None:
        """Gives the watcher back to the loop."""
        self._watcher.close()
