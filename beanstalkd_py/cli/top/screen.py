"""`top` on a terminal, drawn by curses until a key or a signal ends it.

`view` defines the effect of keys, `header` and `table` the contents.
"""

from __future__ import annotations

import contextlib
import curses
import os
import signal
import sys
from collections.abc import Iterator

from beanstalkd_py import errors
from beanstalkd_py.cli.interrupts import exit_by_signal, handled
from beanstalkd_py.cli.top.header import LINES as HEADER_LINES
from beanstalkd_py.cli.top.header import header_lines
from beanstalkd_py.cli.top.sampler import Sampler
from beanstalkd_py.cli.top.table import columns_for
from beanstalkd_py.cli.top.view import HELP, View

_ESCAPE_MS = "25"
"""Wait after Esc for the rest of a key sequence."""
_KEY_WAIT_MS = 50
"""Interval of looking for surveys, errors and a new size of the terminal."""


def show(sampler: Sampler, view: View, address: str, max_count: int | None) -> None:
    """Run until `q` or `max_count` surveys. Raises ToolUsageError for an unknown terminal."""
    os.environ.setdefault("ESCDELAY", _ESCAPE_MS)
    with _terminal() as window:
        Screen(window, sampler, view, address).run(max_count)


@contextlib.contextmanager
def _terminal() -> Iterator[curses.window]:
    # Set before curses starts, which handles signals that have no handler.
    with (
        handled((signal.SIGTERM, signal.SIGHUP), exit_by_signal),
        handled((signal.SIGWINCH,), lambda *_: None),
    ):
        window = _open()
        try:
            yield window
        finally:
            curses.endwin()


def _open() -> curses.window:
    try:
        # initscr would exit the process for an unknown terminal.
        curses.setupterm(fd=sys.stdout.fileno())
    except curses.error as error:
        kind = os.environ.get("TERM", "")
        text = f"unknown terminal {kind!r}; set TERM, for example to xterm"
        raise errors.ToolUsageError(text) from error
    window = curses.initscr()
    curses.noecho()
    curses.cbreak()
    window.keypad(True)
    window.timeout(_KEY_WAIT_MS)
    with contextlib.suppress(curses.error):
        curses.curs_set(0)  # some terminals cannot
    return window


class Screen:
    """Draws the window after keys, surveys, and changes of its size."""

    def __init__(self, window: curses.window, sampler: Sampler, view: View, address: str) -> None:
        self._window = window
        self._sampler = sampler
        self._view = view
        self._address = address
        self._size = (0, 0)

    def run(self, max_count: int | None) -> None:
        view, sampler = self._view, self._sampler
        drawn: object = None
        while not view.quitting:
            if sampler.failure is not None:
                raise sampler.failure
            count = sampler.count
            shown = (count, sampler.last_error, os.get_terminal_size(sys.stdout.fileno()))
            if shown != drawn:
                drawn = shown
                if sampler.newest is not None and sampler.newest is not view.survey:
                    view.show(sampler.newest)
                self._draw()
            if max_count is not None and count >= max_count:
                return
            with contextlib.suppress(curses.error):  # no key was pressed
                key = self._window.get_wch()
                view.key(curses.keyname(key).decode() if isinstance(key, int) else key)
                drawn = None
            if view.interval_s != sampler.interval_s:
                sampler.interval_s = view.interval_s
                view.poll_now = True
            if view.poll_now:
                view.poll_now = False
                sampler.poll_now()

    def _draw(self) -> None:
        self._fit()
        lines, _ = self._size
        self._window.erase()
        if self._view.help_shown:
            for at, line in enumerate(HELP.splitlines()[: lines - 1]):
                self._put(at, 0, line)
            self._put(lines - 1, 0, "press any key to return", curses.A_REVERSE)
        else:
            self._draw_header()
            self._draw_table()
            self._draw_footer()
        self._window.refresh()

    def _fit(self) -> None:
        size = os.get_terminal_size(sys.stdout.fileno())
        if (size.lines, size.columns) != self._size:
            self._size = (size.lines, size.columns)
            curses.resizeterm(*self._size)
            self._window.clear()
        self._view.fit(size.lines - HEADER_LINES - 2)

    def _draw_header(self) -> None:
        survey = self._view.survey
        if survey is None:
            return
        texts = header_lines(survey, self._address, self._view.interval_s)
        for at, text in enumerate(texts):
            self._put(at, 0, text, curses.A_BOLD if at == 0 else 0)

    def _draw_table(self) -> None:
        view = self._view
        columns = columns_for(self._size[1])
        at = 0
        for column in columns:
            sorted_by = column.name == view.selection.sort
            style = curses.A_REVERSE | (curses.A_BOLD | curses.A_UNDERLINE if sorted_by else 0)
            self._put(HEADER_LINES, at, f"{column.aligned(column.heading)} ", style)
            at += column.width + 1
        rows = view.rows[view.first : view.first + view.page]
        for line, row in enumerate(rows, HEADER_LINES + 1):
            at = 0
            for column in columns:
                text = column.cell(row)
                empty = text.strip() in ("0", "-", "0s")
                self._put(line, at, text, curses.A_DIM if empty else 0)
                at += column.width + 1

    def _draw_footer(self) -> None:
        view = self._view
        line = self._size[0] - 1
        if view.prompt is not None:
            self._put(line, 0, f"{view.prompt.label}{view.prompt.text}_", curses.A_BOLD)
        elif view.message:
            self._put(line, 0, view.message, curses.A_BOLD)
        elif self._sampler.last_error:
            self._put(line, 0, self._sampler.last_error, curses.A_REVERSE)
        else:
            self._put(line, 0, _footer(view))

    def _put(self, line: int, at: int, text: str, style: int = 0) -> None:
        lines, columns = self._size
        # Writing the last cell of the last line would scroll.
        space = columns - at - (line == lines - 1)
        if 0 <= line < lines and space > 0:
            self._window.addnstr(line, at, text, space, style)


def _footer(view: View) -> str:
    last = min(len(view.rows), view.first + view.page)
    parts = [f"{view.first + 1 if view.rows else 0}-{last} of {len(view.rows)}"]
    if view.selection.pattern:
        parts.append(f"filter {view.selection.pattern}")
    parts.append(f"by {view.selection.sort}{' (reversed)' if view.selection.reverse else ''}")
    if view.paused:
        parts.append("PAUSED")
    return "  ".join([*parts, "?: help  q: quit"])
