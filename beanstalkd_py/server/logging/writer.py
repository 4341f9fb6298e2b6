"""Writes log lines without blocking: a thread and a bounded buffer.

Otherwise an unread pipe, a stopped terminal or a hanging disk would stop the server. stderr itself
cannot be made non-blocking, because other processes share it. Lines that do not fit into the buffer
are dropped and counted.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable

BUFFER_BYTES = 1 << 20
"""The capacity for queued lines; urgent lines may use twice as much."""
CHUNK_BYTES = select.PIPE_BUF
"""The maximum size of one write. Up to this size, a write to a pipe is atomic."""
URGENT_S = 0.1
"""How long `put` waits until an urgent line is written, because the process may end soon."""


class LogWriter:
    """Writes to `fd`, which the caller owns. `lost_line` formats the number of dropped lines.

    The process must not fork afterwards.
    """

    def __init__(
        self, fd: int, lost_line: Callable[[int], bytes], capacity: int = BUFFER_BYTES
    ) -> None:
        self._fd = fd
        self._capacity = capacity
        self._lost_line = lost_line
        self._lost = 0
        self._lines: deque[bytes] = deque()
        self._bytes = 0  # of queued lines and of the current write
        self._timed_out = False  # the last flush, without a write since
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def put(self, line: bytes, urgent: bool = False) -> None:
        """Queue a line, or drop it if the buffer is full."""
        with self._changed:
            if self._bytes + len(line) > (2 * self._capacity if urgent else self._capacity):
                self._lost += 1
                return
            self._report_lost()
            self._append(line)
        if urgent and not self._timed_out:
            self.flush(URGENT_S)

    def flush(self, limit_s: float) -> bool:
        """Wait until all lines are written; return False after the limit."""
        end = time.monotonic() + limit_s
        with self._changed:
            while self._bytes and (left_s := end - time.monotonic()) > 0:
                self._changed.wait(left_s)
            self._timed_out = self._bytes > 0
            return not self._timed_out

    def _append(self, line: bytes) -> None:
        self._lines.append(line)
        self._bytes += len(line)
        self._changed.notify_all()

    def _report_lost(self) -> None:
        if self._lost:
            lost, self._lost = self._lost, 0
            self._append(self._lost_line(lost))

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._lines:
                    self._changed.wait()
                chunk = self._take()
            self._write(chunk)
            with self._changed:
                self._bytes -= len(chunk)
                self._timed_out = False
                if not self._lines:
                    self._report_lost()
                self._changed.notify_all()

    def _take(self) -> bytes:
        lines = [self._lines.popleft()]
        size = len(lines[0])
        while self._lines and size + len(self._lines[0]) <= CHUNK_BYTES:
            lines.append(self._lines.popleft())
            size += len(lines[-1])
        return b"".join(lines)

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:  # another process has made it non-blocking
                select.select([], [self._fd], [])
            except OSError:
                return  # the reader is gone
