"""Exclusive use of a store: the file `lock`, and `abort`, which exists until a clean close."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

from beanstalkd_py import symlinks
from beanstalkd_py.errors import StoreLockedError
from beanstalkd_py.history.files import layout

_FLOCK = struct.Struct("hhqqi")


class StoreLock:
    """An exclusive lock, also against RocketMQ, which locks the same byte.

    The lock belongs to the open file, not to the process: two stores of one process exclude each
    other, and closing another descriptor of the file does not release it.
    """

    def __init__(self, store: Path) -> None:
        """Raises StoreLockedError, OSError."""
        self._fd = layout.open_to_write(store / layout.LOCK)
        first_byte = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, first_byte)
            os.pwrite(self._fd, b"lock", 0)
        except OSError as error:
            os.close(self._fd)
            if isinstance(error, BlockingIOError | PermissionError):
                raise StoreLockedError(f"{store} is in use: it is open elsewhere") from error
            raise

    def release(self) -> None:
        os.close(self._fd)


def was_stopped_cleanly(store: Path) -> bool:
    return not (store / layout.ABORT).exists()


def mark_open(store: Path) -> None:
    layout.write_file(store / layout.ABORT, str(os.getpid()).encode())


def mark_clean(store: Path) -> None:
    symlinks.remove(store / layout.ABORT, missing_ok=True)
    symlinks.sync_folder(store)
