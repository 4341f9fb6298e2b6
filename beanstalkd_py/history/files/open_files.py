"""A cache of open files with a limit, because a store has at least one file per queue."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beanstalkd_py import symlinks
from beanstalkd_py.regular_file import open_regular

MOST_OPEN = 256


def open_existing(path: Path, writable: bool) -> int:
    """Return a descriptor of an existing file. Raises OSError."""
    return symlinks.open_file(path, os.O_RDWR) if writable else open_regular(path)


class _Open:
    """A descriptor that is closed with the last reference to this object."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class Descriptors:
    """The open files of one store; thread-safe. A borrowed file stays open until its return."""

    def __init__(self, writable: bool) -> None:
        self._writable = writable
        self._open: OrderedDict[Path, _Open] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self, path: Path) -> Iterator[int]:
        """Return a context with the descriptor of an existing file. Raises OSError."""
        with self._lock:
            opened = self._open.get(path)
            if opened is None:
                opened = self._open[path] = _Open(open_existing(path, self._writable))
                if len(self._open) > MOST_OPEN:
                    self._open.popitem(last=False)
            else:
                self._open.move_to_end(path)
        yield opened.fd

    def forget(self, path: Path) -> None:
        """Close a file that is about to be removed."""
        with self._lock:
            self._open.pop(path, None)

    def close(self) -> None:
        with self._lock:
            self._open.clear()


def write_all(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write every byte at the offset. Raises OSError."""
    view = memoryview(data)
    while len(view) > 0:
        written = os.pwrite(fd, view, offset)
        view = view[written:]
        offset += written
