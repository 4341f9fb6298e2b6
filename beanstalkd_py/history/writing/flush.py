"""Syncs of the log: group commit for waiting threads, and by time."""

from __future__ import annotations

import threading
import time

from beanstalkd_py.errors import FlushTimeoutError
from beanstalkd_py.history.files.commit_log import CommitLog
from beanstalkd_py.history.files.health import Health


class _Waiter:
    """A thread that waits until the log is on disk up to an offset."""

    __slots__ = ("gate", "leads", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.leads = False
        self.gate = threading.Lock()
        self.gate.acquire()


class GroupCommit:
    """The first waiting thread syncs for all; threads that arrive meanwhile wait for the next sync.

    One of them performs the next sync for all of them.
    """

    def __init__(self, log: CommitLog, health: Health, timeout: float) -> None:
        self._log = log
        self._health = health
        self._timeout = timeout
        self._lock = threading.Lock()
        self._is_syncing = False
        self._waiters: list[_Waiter] = []
        self.syncs = 0
        self.flushed_timestamp = 0
        self.last_sync = time.monotonic()

    def wait(self, offset: int) -> None:
        """Wait until the log is on disk up to the offset.

        Raises StoreFailedError, FlushTimeoutError.
        """
        with self._lock:
            if self._log.flushed >= offset:
                return
            self._health.check()
            waiter = _Waiter(offset)
            waiter.leads = not self._is_syncing
            if waiter.leads:
                self._is_syncing = True
            else:
                self._waiters.append(waiter)
        if not waiter.leads:
            self._wait_for_others(waiter)
        if waiter.leads:
            self._sync()

    def _wait_for_others(self, waiter: _Waiter) -> None:
        """Wait until another thread has synced, or until this thread becomes the leader."""
        if not waiter.gate.acquire(timeout=self._timeout):
            with self._lock:
                if waiter in self._waiters:  # else it has just been woken
                    self._waiters.remove(waiter)
                    raise FlushTimeoutError(f"no sync of the log within {self._timeout:g} s")
        if not waiter.leads and self._log.flushed < waiter.offset:
            raise self._health.error()

    def _sync(self) -> None:
        """Sync as the leader."""
        reached, timestamp = self._log.end, self._log.last_timestamp
        failure = None
        try:
            self._log.segments.sync()
        except OSError as error:
            failure = self._health.fail(error)
        with self._lock:
            if failure is None:
                self._log.flushed = max(self._log.flushed, reached)
                self.flushed_timestamp = max(self.flushed_timestamp, timestamp)
                self.syncs += 1
                self.last_sync = time.monotonic()
            called = self._call_waiters(failure is not None)
        for waiter in called:
            waiter.gate.release()
        if failure is not None:
            raise failure

    def _call_waiters(self, is_over: bool) -> list[_Waiter]:
        """Return the waiters to wake: those that are served, and one that leads the next sync."""
        flushed = self._log.flushed
        called = [each for each in self._waiters if is_over or each.offset <= flushed]
        self._waiters = [each for each in self._waiters if not is_over and each.offset > flushed]
        self._is_syncing = bool(self._waiters)
        if self._waiters:
            leader = self._waiters.pop(0)
            leader.leads = True
            called.insert(0, leader)
        return called

    def flush(self) -> None:
        """Sync everything written before the call. Raises StoreFailedError."""
        self._health.check()
        end = self._log.end
        while self._log.flushed < end:
            self.wait(end)

    def is_due(self, least_bytes: int, thorough_seconds: float) -> bool:
        """Return whether enough bytes wait, or any for too long."""
        waiting = self._log.end - self._log.flushed
        late = time.monotonic() - self.last_sync >= thorough_seconds
        return waiting >= least_bytes or (waiting > 0 and late)
