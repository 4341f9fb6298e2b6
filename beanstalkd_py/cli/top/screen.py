"""`top` on a terminal: the whole of it, until a key or a signal ends that.

curses of the standard library knows what the terminal understands, sends only what has changed, and
restores it when it is stopped (Ctrl-Z). Must not know what is shown, or what keys mean.
"""

from __future__ import annotations

import contextlib
import curses
import os
import select
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from beanstalkd_py import errors
from beanstalkd_py.cli.top.header import LINES as HEAD_LINES
from beanstalkd_py.cli.top.header import head_lines
from beanstalkd_py.cli.top.sampler import Sampler
from beanstalkd_py.cli.top.table import Layout
from beanstalkd_py.cli.top.view import HELP, View

_ESCAPE_MS = "25"
"""How long a lone Esc may still become the beginning of another key."""
_ENDING = (signal.SIGTERM, signal.SIGHUP)


def show(sampler: Sampler, view: View, address: str, most: int | None) -> None:
    """Shows surveys until `q`, or `most` of them. Raises ToolUsageError for a terminal unknown."""
    os.environ.setdefault("ESCDELAY", _ESCAPE_MS)
    with _terminal(sampler) as window:
        Screen(window, sampler, view, address).run(most)


@contextlib.contextmanager
def _terminal(sampler: Sampler) -> Iterator[curses.window]:
    # Before curses, which takes these signals itself where nobody else does.
    before = {number: signal.signal(number, _leave) for number in _ENDING}
    before[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda *_: sampler.wake())
    try:
        window = _opened()
        try:
            yield window
        finally:
            curses.endwin()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _opened() -> curses.window:
    try:
        # initscr would end the process for a terminal that it does not know.
        curses.setupterm(fd=sys.stdout.fileno())
    except curses.error as error:
        kind = os.environ.get("TERM", "")
        text = f"the terminal {kind!r} is not known here; set TERM, to xterm for example"
        raise errors.ToolUsageError(text) from error
    window = curses.initscr()
    curses.noecho()
    curses.cbreak()
    window.keypad(True)
    window.nodelay(True)
    with contextlib.suppress(curses.error):
        curses.curs_set(0)  # not every terminal can
    return window


def _leave(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


class Screen:
    """The window, and what wakes it: keys, surveys, a new size."""

    def __init__(self, window: curses.window, sampler: Sampler, view: View, address: str) -> None:
        self._window = window
        self._sampler = sampler
        self._view = view
        self._address = address
        self._size = (0, 0)

    def run(self, most: int | None) -> None:
        """Until the view leaves."""
        view, sampler = self._view, self._sampler
        while not view.leaving:
            if sampler.failure is not None:
                raise sampler.failure
            if sampler.newest is not None and sampler.newest is not view.survey:
                view.take(sampler.newest)
            self._draw()
            if most is not None and sampler.count >= most:
                return
            select.select([sys.stdin, sampler], [], [])
            sampler.heard()
            for key in self._keys():
                view.key(key)
            if view.interval_s != sampler.interval_s:
                sampler.interval_s = view.interval_s
                view.hurried = True
            if view.hurried:
                view.hurried = False
                sampler.hurry()

    def _keys(self) -> Iterator[str]:
        while True:
            try:
                key = self._window.get_wch()
            except curses.error:
                return  # no more for now
            if isinstance(key, int):
                yield curses.keyname(key).decode()
            else:
                yield key

    def _draw(self) -> None:
        self._fit()
        lines, _ = self._size
        self._window.erase()
        if self._view.helping:
            for at, line in enumerate(HELP.splitlines()[: lines - 1]):
                self._put(at, 0, line)
            self._put(lines - 1, 0, "any key goes back", curses.A_REVERSE)
        else:
            self._draw_head()
            self._draw_table()
            self._draw_foot()
        self._window.refresh()

    def _fit(self) -> None:
        size = os.get_terminal_size(sys.stdout.fileno())
        if (size.lines, size.columns) != self._size:
            self._size = (size.lines, size.columns)
            curses.resizeterm(*self._size)
            self._window.clear()
        self._view.fit(size.lines - HEAD_LINES - 2)

    def _draw_head(self) -> None:
        survey = self._view.survey
        if survey is None:
            return
        texts = head_lines(survey, self._address, self._view.interval_s)
        for at, text in enumerate(texts):
            self._put(at, 0, text, curses.A_BOLD if at == 0 else 0)

    def _draw_table(self) -> None:
        view = self._view
        layout = Layout.fitting(self._size[1])
        at = 0
        for column, heading in zip(layout.columns, layout.headings(), strict=True):
            chosen = column.name == view.choice.sort
            style = curses.A_REVERSE | (curses.A_BOLD | curses.A_UNDERLINE if chosen else 0)
            self._put(HEAD_LINES, at, f"{heading} ", style)
            at += len(heading) + 1
        for line, row in enumerate(view.rows[view.first : view.first + view.page], HEAD_LINES + 1):
            at = 0
            for text in layout.cells(row):
                empty = text.strip() in ("0", "-", "0s")
                self._put(line, at, text, curses.A_DIM if empty else 0)
                at += len(text) + 1

    def _draw_foot(self) -> None:
        view = self._view
        line = self._size[0] - 1
        if view.prompt is not None:
            self._put(line, 0, f"{view.prompt.label}{view.prompt.text}_", curses.A_BOLD)
        elif view.message:
            self._put(line, 0, view.message, curses.A_BOLD)
        elif self._sampler.trouble:
            self._put(line, 0, self._sampler.trouble, curses.A_REVERSE)
        else:
            self._put(line, 0, _foot(view))

    def _put(self, line: int, at: int, text: str, style: int = 0) -> None:
        lines, columns = self._size
        # The last cell of the last line cannot be written without scrolling.
        room = columns - at - (line == lines - 1)
        if 0 <= line < lines and room > 0:
            self._window.addnstr(line, at, text, room, style)


def _foot(view: View) -> str:
    last = min(len(view.rows), view.first + view.page)
    parts = [f"{view.first + 1 if view.rows else 0}-{last} of {len(view.rows)}"]
    if view.choice.pattern:
        parts.append(f"with {view.choice.pattern}")
    parts.append(f"by {view.choice.sort}{' (turned)' if view.choice.reverse else ''}")
    if view.paused:
        parts.append("PAUSED")
    return "  ".join([*parts, "?: help  q: quit"])
