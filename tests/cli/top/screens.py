"""Run a command on a pseudo terminal and read its screen through an emulator."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MappingProxyType

import pyte

LIMIT_S = 15.0
ALTERNATE, ORDINARY = b"\x1b[?1049h", b"\x1b[?1049l"


class Emulator(pyte.Screen):
    """Adds scrolling by several lines, which curses uses and pyte lacks."""

    def scroll_up(self, count: int = 1) -> None:
        margins = self.margins or pyte.screens.Margins(0, self.lines - 1)
        at = self.cursor.y
        self.cursor.y = margins.bottom
        for _ in range(count):
            self.index()
        self.cursor.y = at

    def scroll_down(self, count: int = 1) -> None:
        margins = self.margins or pyte.screens.Margins(0, self.lines - 1)
        at = self.cursor.y
        self.cursor.y = margins.top
        for _ in range(count):
            self.reverse_index()
        self.cursor.y = at


class Stream(pyte.ByteStream):
    csi = MappingProxyType({**pyte.ByteStream.csi, "S": "scroll_up", "T": "scroll_down"})
    events = pyte.ByteStream.events | {"scroll_up", "scroll_down"}


class Screen:
    """A command on a terminal of its own, with TERM=screen because pyte lacks REP of xterm."""

    def __init__(self, command: list[str], columns: int = 80, lines: int = 24, **env: str) -> None:
        self._ours, self._theirs = pty.openpty()
        self.before = termios.tcgetattr(self._theirs)
        self._emulator = Emulator(columns, lines)
        self._stream = Stream(self._emulator)
        self._set_size(columns, lines)
        self.raw = b""
        self.process = subprocess.Popen(
            command,
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            env={**os.environ, "TERM": "screen", **env},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._emulator.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def wait_until(self, condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
        end = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < end, self.text
            self._read(0.02)

    def wait_for(self, words: str) -> None:
        self.wait_until(lambda: words in self.text)

    def row(self, name: str) -> list[str]:
        """Return the words of the line that starts with `name`; [] if there is none."""
        return next((line.split() for line in self.lines if line.split()[:1] == [name]), [])

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        self._emulator.resize(lines, columns)
        self._set_size(columns, lines)

    def end(self) -> int:
        """Wait for the exit, check that the terminal is restored, and return the status."""
        end = time.monotonic() + LIMIT_S
        while self.process.poll() is None:
            assert time.monotonic() < end, self.text
            self._read(0.02)
        while self._read(0):
            pass
        assert termios.tcgetattr(self._theirs) == self.before
        if ALTERNATE in self.raw:
            assert self.raw.rfind(ORDINARY) > self.raw.rfind(ALTERNATE)
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(LIMIT_S)
        os.close(self._ours)
        os.close(self._theirs)

    def _read(self, limit_s: float) -> bool:
        if not select.select([self._ours], [], [], limit_s)[0]:
            return False
        data = os.read(self._ours, 1 << 16)
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


@contextmanager
def screen(*words: str | int, columns: int = 80, lines: int = 24, **env: str) -> Iterator[Screen]:
    command = [sys.executable, "-m", "beanstalkd_py", *map(str, words)]
    opened = Screen(command, columns, lines, **env)
    try:
        yield opened
    finally:
        opened.close()
