"""Signals as bytes in a pipe, so that one greenlet handles all signals in their order."""

from __future__ import annotations

import os
import signal

PIPE_BYTES = 4096


class SignalPipe:
    """Catches these signals from its creation on. Main thread only."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # No warning for a full pipe, because thousands of signals are unread then.
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in numbers:
            # Python writes to the wakeup descriptor only if a handler is set.
            signal.signal(number, lambda number, frame: None)

    def fileno(self) -> int:
        return self._reader

    def take(self) -> set[signal.Signals]:
        try:
            data = os.read(self._reader, PIPE_BYTES)
        except BlockingIOError:
            return set()
        return {signal.Signals(number) for number in data}
