"""A cache of open files with a limit, because a store has at least one file per queue."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beanstalkd_py import symlinks

MOST_OPEN = 256


class _Open:
    __slots__ = ("borrowed", "fd")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.borrowed = 0


class Descriptors:
    """The open files of one store; thread-safe."""

    def __init__(self, writable: bool, most: int = MOST_OPEN) -> None:
        self._writable = writable
        self._most = most
        self._open: OrderedDict[Path, _Open] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self, path: Path) -> Iterator[int]:
        """Return a context with the descriptor of an existing file. Raises OSError."""
        with self._lock:
            entry = self._open.get(path)
            if entry is None:
                entry = self._open[path] = _Open(self._opened(path))
                self._close_idle()
            else:
                self._open.move_to_end(path)
            entry.borrowed += 1
        try:
            yield entry.fd
        finally:
            with self._lock:
                entry.borrowed -= 1
                if entry.borrowed == 0 and self._open.get(path) is not entry:
                    os.close(entry.fd)

    def _opened(self, path: Path) -> int:
        if self._writable:
            return symlinks.open_file(path, os.O_RDWR)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def forget(self, path: Path) -> None:
        """Close a file that is about to be removed."""
        with self._lock:
            entry = self._open.pop(path, None)
            if entry is not None and entry.borrowed == 0:
                os.close(entry.fd)

    def close(self) -> None:
        """Close all files; borrowed ones are closed when they are returned."""
        for path in list(self._open):
            self.forget(path)

    def _close_idle(self) -> None:
        if len(self._open) <= self._most:
            return
        for path, entry in list(self._open.items()):
            if entry.borrowed == 0 and len(self._open) > self._most:
                del self._open[path]
                os.close(entry.fd)


def write_all(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write every byte at the offset. Raises OSError."""
    view = memoryview(data)
    while len(view) > 0:
        written = os.pwrite(fd, view, offset)
        view = view[written:]
        offset += written
