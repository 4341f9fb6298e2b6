"""Who has a store: the file `lock`, and the file `abort`, which is there until a clean stop."""

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
    """Exclusive as long as it is held, also against RocketMQ, which locks the same byte.

    The lock belongs to the open file and not to the process, so that two stores of one process
    exclude each other, and nobody who reads the file takes it away.
    """

    def __init__(self, store: Path) -> None:
        """StoreLockedError, OSError."""
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
        """Others may have it."""
        os.close(self._fd)


def was_stopped_cleanly(store: Path) -> bool:
    """Whether who had the store last has closed it."""
    return not (store / layout.ABORT).exists()


def mark_open(store: Path) -> None:
    """From now on a stop is unclean."""
    layout.write_file(store / layout.ABORT, str(os.getpid()).encode())


def mark_clean(store: Path) -> None:
    """Everything is on disk."""
    symlinks.remove(store / layout.ABORT, missing_ok=True)
    layout.sync_folder(store)
