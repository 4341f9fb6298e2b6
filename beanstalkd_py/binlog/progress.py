"""Progress of long operations: a bar on a terminal, otherwise a log line every few seconds."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

LOGGER = logging.getLogger("beanstalkd_py")
LINE_INTERVAL_S = 3.0


class Progress:
    """Receives the progress of an operation. This class ignores it."""

    def begin(self, total: int) -> None: ...

    def advance(self, done: int) -> None: ...

    def end(self) -> None:
        """The operation ended, completely or not."""


class Bar(Progress):
    """A progress bar on stderr."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._bar: Any = None
        self._done = 0

    def begin(self, total: int) -> None:
        if total == 0:
            return
        import click  # a slow import that most starts do not need

        self._done = 0
        self._bar = click.progressbar(length=total, label=self._label, file=sys.stderr)
        self._bar.__enter__()

    def advance(self, done: int) -> None:
        if self._bar is not None:
            self._bar.update(done - self._done)
            self._done = done

    def end(self) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None


class Lines(Progress):
    """Log lines, at most one in LINE_INTERVAL_S seconds."""

    def __init__(self, level: int, label: str = "resharding", unit: str = "jobs") -> None:
        self._level = level
        self._label = label
        self._unit = unit
        self._total = 0
        self._logged_mono = 0.0

    def begin(self, total: int) -> None:
        self._total = total
        self._logged_mono = time.monotonic()

    def advance(self, done: int) -> None:
        now_mono = time.monotonic()
        if now_mono - self._logged_mono < LINE_INTERVAL_S:
            return
        self._logged_mono = now_mono
        percent = 100 * done // self._total
        text = "%s: %d of %d %s written (%d%%)"
        LOGGER.log(self._level, text, self._label, done, self._total, self._unit, percent)


def progress_on_stderr(level: int, label: str = "resharding", unit: str = "jobs") -> Progress:
    """Return a bar if stderr is a terminal, otherwise log lines. `unit` is what is counted."""
    return Bar(label) if sys.stderr.isatty() else Lines(level, label, unit)
