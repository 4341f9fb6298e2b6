"""How far Spark has come: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any, Self

from beanstalkd_py.cli.output import say

LINE_INTERVAL_S = 15.0
LOOK_INTERVAL_S = 0.25
_STARTING = "starting Spark"


class Progress:
    """Of the tasks of the stages that run, those that are done; Spark knows no more in advance."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._bar: Any = None
        self._task: Any = None
        self._context: Any = None
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._said_mono = time.monotonic()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            self._bar = progress.Progress(
                progress.TextColumn("{task.description}", markup=False),
                progress.BarColumn(),
                progress.TextColumn("{task.fields[tasks]}", markup=False),
                progress.TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(_STARTING, total=None, tasks="")
            self._bar.start()
        return self

    def follow(self, context: Any) -> None:
        """From now on, the stages of this SparkContext."""
        self._context = context
        self._watcher.start()

    def hide(self) -> None:
        """Nothing is shown from now on: rows follow on the terminal."""
        self._ended.set()
        if self._watcher.is_alive():
            self._watcher.join()
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.hide()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_INTERVAL_S):
            try:
                done, total = self._tasks()
            except Exception:
                # Spark is being stopped; whatever has gone wrong is told by who waits for it.
                return
            self._show(done, total)

    def _tasks(self) -> tuple[int, int]:
        tracker = self._context.statusTracker()
        found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        stages = [stage for stage in found if stage is not None]
        return sum(each.numCompletedTasks for each in stages), sum(each.numTasks for each in stages)

    def _show(self, done: int, total: int) -> None:
        tasks = f"{done} of {total} tasks" if total else ""
        if self._bar is not None:
            known = total or None
            self._bar.update(
                self._task, description=self._label, completed=done, total=known, tasks=tasks
            )
            return
        now_mono = time.monotonic()
        if tasks and now_mono - self._said_mono >= LINE_INTERVAL_S:
            self._said_mono = now_mono
            say(f"{self._label}: {tasks} of this stage done")
