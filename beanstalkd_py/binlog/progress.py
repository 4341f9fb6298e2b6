"""Progress of long operations: a bar on a terminal, otherwise a log line every few seconds."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

LOGGER = logging.getLogger("beanstalkd_py")
LINE_INTERVAL_S = 3.0

Advance = Callable[[int], None]
"""Shows how much is done."""
Progress = Callable[[int], contextlib.AbstractContextManager[Advance]]
"""Shows the progress of an operation on so many units, which runs inside the context."""


def no_progress(_total: int) -> contextlib.AbstractContextManager[Advance]:
    return contextlib.nullcontext(lambda _done: None)


@contextlib.contextmanager
def _bar(label: str, total: int) -> Iterator[Advance]:
    if total == 0:
        yield lambda _done: None
        return
    import click  # a slow import that most starts do not need

    with click.progressbar(length=total, label=label, file=sys.stderr) as bar:
        yield lambda done: bar.update(done - bar.pos)


@contextlib.contextmanager
def log_lines(level: int, label: str, unit: str, total: int) -> Iterator[Advance]:
    """Log at most one line in LINE_INTERVAL_S seconds."""
    logged_mono = time.monotonic()

    def advance(done: int) -> None:
        nonlocal logged_mono
        now_mono = time.monotonic()
        if now_mono - logged_mono >= LINE_INTERVAL_S:
            logged_mono = now_mono
            text = "%s: %d of %d %s written (%d%%)"
            LOGGER.log(level, text, label, done, total, unit, 100 * done // total)

    yield advance


def progress_on_stderr(level: int, label: str = "resharding", unit: str = "jobs") -> Progress:
    """Return a bar if stderr is a terminal, otherwise log lines. `unit` is what is counted."""
    return partial(_bar, label) if sys.stderr.isatty() else partial(log_lines, level, label, unit)
