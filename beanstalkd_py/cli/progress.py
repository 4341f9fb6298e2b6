"""Progress of a long command: a bar on a terminal, otherwise a line on stderr at intervals."""

from __future__ import annotations

import sys
import time
from typing import Any, Self

from beanstalkd_py.cli.output import notice


class Progress:
    """A bar, or lines at least `interval_s` apart. Without `total`, updates set the total."""

    def __init__(self, label: str, interval_s: float, total: int | None = None) -> None:
        self._label = label
        self._total = total
        self._interval_s = interval_s
        self._bar: Any = None
        self._task: Any = None
        self._last_mono = time.monotonic()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            self._bar = progress.Progress(
                progress.TextColumn("{task.description}", markup=False),
                progress.BarColumn(),
                progress.TextColumn("{task.fields[detail]}", markup=False),
                progress.TimeRemainingColumn() if self._total else progress.TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(self._label, total=self._total, detail="")
            self._bar.start()
        return self

    def update(self, done: int, total: int | None, detail: str) -> None:
        """Show `done` of `total`, with `detail` beside the bar or as a line; "" prints no line."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, detail=detail)
            return
        now_mono = time.monotonic()
        if detail and now_mono - self._last_mono >= self._interval_s:
            self._last_mono = now_mono
            notice(f"{self._label}: {detail}")

    def hide(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __exit__(self, *_: object) -> None:
        self.hide()
