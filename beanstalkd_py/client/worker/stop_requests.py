"""Requests to stop a worker, by a signal, another thread, or the end of the parent process."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequests:
    """A pipe with a byte per request.

    Unlike with a lock, a signal handler can write to a pipe at any moment.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)

    def request(self) -> None:
        # A full pipe contains many requests already.
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"x")

    def wait(self, timeout_s: float | None, others: Sequence[int] = ()) -> None:
        """Wait for a request, or until one of the other descriptors is readable."""
        wait([self._read, *others], timeout_s)

    def take(self) -> bool:
        """Return whether there was a request since the last call."""
        try:
            return bool(os.read(self._read, 1 << 10))
        except BlockingIOError:
            return False

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """Make a request of SIGTERM and SIGINT, and unblock both, if this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = {
            number: signal.signal(number, lambda *_: self.request()) for number in STOP_SIGNALS
        }
        mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            for number, handler in handlers.items():
                signal.signal(number, handler)
