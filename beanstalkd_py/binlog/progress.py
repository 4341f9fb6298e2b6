"""How far something long has got: a bar on a terminal, a line every few seconds elsewhere.

Must not know what is being counted.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any, Protocol

LOGGER = logging.getLogger("beanstalkd_py")
LINE_INTERVAL_S = 3.0


class Progress(Protocol):
    """Told of jobs or bytes as they are done."""

    def begin(self, total: int) -> None:
        """So many there are."""

    def advance(self, done: int) -> None:
        """So many are done, of all."""

    def end(self) -> None:
        """Nothing more comes, whether or not all are done."""


class NoProgress:
    """For whoever is not interested."""

    def begin(self, total: int) -> None:
        """See Progress."""

    def advance(self, done: int) -> None:
        """See Progress."""

    def end(self) -> None:
        """See Progress."""


class Bar:
    """On the terminal that stderr is."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._bar: Any = None
        self._done = 0

    def begin(self, total: int) -> None:
        """See Progress."""
        if total == 0:
            return
        import click  # not needed by a start that finds everything as it should be

        self._done = 0
        self._bar = click.progressbar(length=total, label=self._label, file=sys.stderr)
        self._bar.__enter__()

    def advance(self, done: int) -> None:
        """See Progress."""
        if self._bar is not None:
            self._bar.update(done - self._done)
            self._done = done

    def end(self) -> None:
        """See Progress."""
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None


class Lines:
    """In the log, at `level`, not more often than every LINE_INTERVAL_S seconds."""

    def __init__(self, level: int, label: str = "resharding", unit: str = "jobs") -> None:
        self._level = level
        self._label = label
        self._unit = unit
        self._total = 0
        self._said_mono = 0.0

    def begin(self, total: int) -> None:
        """See Progress."""
        self._total = total
        self._said_mono = time.monotonic()

    def advance(self, done: int) -> None:
        """See Progress."""
        now_mono = time.monotonic()
        if now_mono - self._said_mono < LINE_INTERVAL_S:
            return
        self._said_mono = now_mono
        percent = 100 * done // self._total
        text = "%s: %d of %d %s written (%d%%)"
        LOGGER.log(self._level, text, self._label, done, self._total, self._unit, percent)

    def end(self) -> None:
        """See Progress."""


def progress_on_stderr(level: int, label: str = "resharding", unit: str = "jobs") -> Progress:
    """Whichever of the two fits where stderr leads. `unit` is what is counted."""
    return Bar(label) if sys.stderr.isatty() else Lines(level, label, unit)
