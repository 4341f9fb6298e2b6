"""Writes the progress of schedules on a thread, so that a slow disk delays no client."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import gevent
from gevent.event import Event

from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.schedules.progress_file import Progress, save_progress

RETRY_S = 1.0

Snapshot = Callable[[], Mapping[str, Progress]]


class ProgressWriter:
    """Writes the newest progress whenever it has changed. `folder` is the binlog folder.

    Calls `saved` after each write.
    """

    def __init__(
        self, folder: str, snapshot: Snapshot, saved: Callable[[], object] = lambda: None
    ) -> None:
        self._folder = folder
        self._snapshot = snapshot
        self._saved = saved
        self._changed = Event()
        self._closing = False
        self._written: Mapping[str, Progress] | None = None
        self._failed = ""
        self._task = gevent.spawn(self._run)

    def wake(self) -> None:
        """Write the progress if it has changed."""
        self._changed.set()

    def close(self) -> None:
        """Write the progress a last time, and wait for it."""
        self._closing = True
        self._changed.set()
        self._task.join()

    def _run(self) -> None:
        # A write covers all changes during the previous one.
        closing = False
        while not closing:
            self._changed.wait()
            self._changed.clear()
            closing = self._closing
            progress = self._snapshot()
            if progress != self._written and not self._write(progress) and not closing:
                self._changed.set()
                gevent.sleep(RETRY_S)

    def _write(self, progress: Mapping[str, Progress]) -> bool:
        try:
            gevent.get_hub().threadpool.apply(save_progress, (self._folder, progress))
        except OSError as error:
            self._report(str(error))
            return False
        self._report("")
        self._written = progress
        self._saved()
        return True

    def _report(self, failed: str) -> None:
        if failed and failed != self._failed:
            LOGGER.error("cannot save the progress of schedules: %s; retrying", failed)
        elif self._failed and not failed:
            LOGGER.info("the progress of schedules is saved again")
        self._failed = failed
