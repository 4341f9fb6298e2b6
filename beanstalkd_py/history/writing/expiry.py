"""Expiry: remove the oldest files by age, size and disk usage.

The log expires first; queue and index files follow when all of their messages are gone. The last
file of each sequence is kept.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from beanstalkd_py.history.files.commit_log import CommitLog
from beanstalkd_py.history.files.consume_queue import ConsumeQueue, ConsumeQueues
from beanstalkd_py.history.files.index import Index
from beanstalkd_py.history.options import Retention


@dataclass(frozen=True, slots=True)
class Expired:
    """Numbers of removed files."""

    log_files: int = 0
    queue_files: int = 0
    index_files: int = 0

    @property
    def any(self) -> bool:
        return bool(self.log_files or self.queue_files or self.index_files)


def disk_used(folder: Path) -> float:
    """Return how full the disk is for unprivileged users, 0.0 to 1.0."""
    disk = os.statvfs(folder)
    used = disk.f_blocks - disk.f_bfree
    usable = used + disk.f_bavail
    return used / usable if usable else 1.0


class Expiry:
    """Applies the retention rules of one store."""

    def __init__(
        self,
        folder: Path,
        retention: Retention,
        log: CommitLog,
        queues: ConsumeQueues,
        index: Index,
    ) -> None:
        self._folder = folder
        self._retention = retention
        self._log = log
        self._queues = queues
        self._index = index

    def is_full(self) -> bool:
        """Return whether appends should be refused."""
        return disk_used(self._folder) >= self._retention.disk_full

    def change(self, retention: Retention) -> None:
        self._retention = retention

    def is_due(self) -> bool:
        """Return whether expired files should be removed now: at the hour, or above a limit."""
        hour = time.localtime().tm_hour
        return (
            hour in self._retention.at_hours
            or disk_used(self._folder) >= self._retention.disk_used
            or self._is_over()
        )

    def _is_over(self) -> bool:
        """Return whether files are removed before they expire."""
        log, most = self._log.segments, self._retention.most_bytes
        too_many = 0 < most < len(log.starts) * log.size
        return too_many or disk_used(self._folder) >= self._retention.disk_crowded

    def run(self, now: float | None = None) -> Expired:
        """Remove what is expired at `now` (seconds since 1970). Raises OSError."""
        now = time.time() if now is None else now
        log_files = self._expire_log(now)
        return Expired(log_files, self._expire_queues(), self._expire_index())

    def _expire_log(self, now: float) -> int:
        """Remove log files, oldest first, up to the first that is too young.

        Age is since the last change.
        """
        segments, removed = self._log.segments, 0
        for start in list(segments.starts[:-1])[: self._retention.files_at_once]:
            age = now - segments.path(start).stat().st_mtime
            if start + segments.size > self._log.flushed:
                break
            if age < self._retention.reserved_seconds and not self._is_over():
                break
            segments.remove(start)
            removed += 1
        if removed:
            segments.sync()
        return removed

    def _expire_queues(self) -> int:
        return sum(self._expire_queue(queue) for queue in self._queues)

    def _expire_queue(self, queue: ConsumeQueue) -> int:
        segments, removed = queue.segments, 0
        for start in list(segments.starts[:-1]):
            last = queue.unit((start + segments.size) // 20 - 1)
            if last is None or (not last.is_filler and last.offset >= self._log.begin):
                break
            segments.remove(start)
            removed += 1
        if removed:
            segments.sync()
        return removed

    def _expire_index(self) -> int:
        removed = 0
        for file in list(self._index.files[:-1]):
            if file.header.end_offset >= self._log.begin:
                break
            self._index.remove(file)
            removed += 1
        return removed
