"""Lines to a descriptor that may be slow, without waiting for it: a thread and a bounded buffer.

The descriptor is shared with other processes, so it cannot be made non-blocking, and a pipe that
nobody reads, a stopped terminal and a disk that hangs all stop whoever writes. Here that is the
thread. What finds no room in the buffer is lost, and counted. Must not know what is in a line.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable

BUFFER_BYTES = 1 << 20
"""For lines that wait; what is urgent may take as much again."""
PIECE_BYTES = select.PIPE_BUF
"""Written at once: a pipe takes as much in one piece, whoever else writes to it."""
URGENT_S = 0.1
"""So long an urgent line is waited for, once, in case the process is about to die."""


class LogWriter:
    """Writes to `fd`, which stays the caller's. `lost` makes a line that says how many were lost.

    Made in a process that does not fork any more.
    """

    def __init__(self, fd: int, lost: Callable[[int], bytes], room: int = BUFFER_BYTES) -> None:
        self._fd = fd
        self._room = room
        self._lost_line = lost
        self._lost = 0
        self._lines: deque[bytes] = deque()
        self._bytes = 0  # of lines, and of what is being written
        self._stuck = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def put(self, line: bytes, urgent: bool = False) -> None:
        """Adds a line, unless there is no room."""
        with self._changed:
            if self._bytes + len(line) > (2 * self._room if urgent else self._room):
                self._lost += 1
                return
            self._tell_lost()
            self._append(line)
        if urgent and not self._stuck:
            self.flush(URGENT_S)

    def flush(self, limit_s: float) -> bool:
        """Waits until all is written, at most so long; whether it is."""
        end = time.monotonic() + limit_s
        with self._changed:
            while self._bytes and (left_s := end - time.monotonic()) > 0:
                self._changed.wait(left_s)
            self._stuck = self._bytes > 0
            return not self._stuck

    def _append(self, line: bytes) -> None:
        self._lines.append(line)
        self._bytes += len(line)
        self._changed.notify_all()

    def _tell_lost(self) -> None:
        if self._lost:
            lost, self._lost = self._lost, 0
            self._append(self._lost_line(lost))

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._lines:
                    self._changed.wait()
                piece = self._take()
            self._write(piece)
            with self._changed:
                self._bytes -= len(piece)
                self._stuck = False
                if not self._lines:
                    self._tell_lost()
                self._changed.notify_all()

    def _take(self) -> bytes:
        """At least one line, and as many more as there is room for."""
        lines = [self._lines.popleft()]
        size = len(lines[0])
        while self._lines and size + len(self._lines[0]) <= PIECE_BYTES:
            lines.append(self._lines.popleft())
            size += len(lines[-1])
        return b"".join(lines)

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:  # somebody else has made it non-blocking
                select.select([], [self._fd], [])
            except OSError:
                return  # whoever read it has gone: there is nobody to tell
