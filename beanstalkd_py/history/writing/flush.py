"""Syncs of the log, each shared by all threads that wait for it."""

from __future__ import annotations

import threading

from beanstalkd_py.errors import FlushTimeoutError
from beanstalkd_py.history.files.commit_log import CommitLog
from beanstalkd_py.history.files.health import Health


class GroupCommit:
    """The first waiting thread syncs for all; threads that arrive meanwhile share the next sync."""

    def __init__(self, log: CommitLog, health: Health, timeout: float) -> None:
        self._log = log
        self._health = health
        self._timeout = timeout
        self._synced = threading.Condition()
        self._is_syncing = False
        self.syncs = 0
        self.flushed_timestamp = 0

    def flush(self) -> None:
        """Sync everything written before the call. Raises StoreFailedError, FlushTimeoutError."""
        self._health.check()
        self.wait(self._log.end)

    def wait(self, offset: int) -> None:
        """Wait until the log is on disk up to the offset. Raises the errors of `flush`."""
        with self._synced:
            while self._is_syncing and self._log.flushed < offset:
                if not self._synced.wait(self._timeout):
                    raise FlushTimeoutError(f"no sync of the log within {self._timeout:g} s")
            if self._log.flushed >= offset:
                return
            self._health.check()
            self._is_syncing = True
        try:
            self._sync()
        finally:
            with self._synced:
                self._is_syncing = False
                self._synced.notify_all()

    def _sync(self) -> None:
        reached, timestamp = self._log.end, self._log.last_timestamp
        try:
            self._log.segments.sync()
        except OSError as error:
            raise self._health.fail(error) from error
        self._log.flushed, self.flushed_timestamp = reached, timestamp
        self.syncs += 1
