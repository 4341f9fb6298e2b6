"""How far a replay has come: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

from beanstalkd_py.cli.output import counted, say

LINE_INTERVAL_S = 3.0


class Progress:
    """Of `total` messages, those that were looked at, and how many jobs were put."""

    def __init__(self, label: str, total: int) -> None:
        self._label = label
        self._total = total
        self._bar: Any = None
        self._task: Any = None
        self._said_mono = time.monotonic()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            self._bar = progress.Progress(
                progress.TextColumn("{task.description}", markup=False),
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                progress.TextColumn("{task.fields[put]}", markup=False),
                progress.TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(self._label, total=self._total, put="")
            self._bar.start()
        return self

    def advance(self, looked_at: int, put: int) -> None:
        """So many of all."""
        if self._bar is not None:
            self._bar.update(self._task, completed=looked_at, put=f"{counted(put)} put")
            return
        now_mono = time.monotonic()
        if now_mono - self._said_mono >= LINE_INTERVAL_S:
            self._said_mono = now_mono
            percent = min(100, 100 * looked_at // max(self._total, 1))
            text = f"{looked_at} of {counted(self._total, 'message')} looked at ({percent}%)"
            say(f"{self._label}: {counted(put)} put, {text}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
