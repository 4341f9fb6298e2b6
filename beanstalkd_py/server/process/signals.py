"""Signals as bytes in a pipe, so that one greenlet reads them in order and none is lost.

Handlers do nothing but make Python write the number; that holds before the event loop runs, too.
Must not know what a signal means.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

PIPE_BYTES = 4096


class SignalPipe:
    """Catches the given signals from now on. Main thread only."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # A full pipe means thousands of signals nobody has read: one more changes nothing.
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, _noted_by_the_pipe)

    def fileno(self) -> int:
        """Readable while signals wait."""
        return self._reader

    def take(self) -> set[signal.Signals]:
        """The signals that came since the last call, each once."""
        try:
            data = os.read(self._reader, PIPE_BYTES)
        except BlockingIOError:
            return set()
        return {signal.Signals(number) for number in data}


def _noted_by_the_pipe(number: int, frame: FrameType | None) -> None:
    """A handler must be set for the number to be written."""
