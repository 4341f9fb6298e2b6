"""Expiry: remove the oldest files by age, size and disk usage.

The log expires first; queue and index files follow when all of their messages are gone. The last
file of each sequence is kept.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from beanstalkd_py.history.files.consume_queue import UNIT, ConsumeQueue
from beanstalkd_py.history.files.segments import Segments
from beanstalkd_py.history.options import Retention
from beanstalkd_py.history.queries.lookup import ReadableStore


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
    def __init__(self, store: ReadableStore, retention: Retention) -> None:
        self.retention = retention
        self._store = store
        self._log = store.log

    def is_full(self) -> bool:
        """Return whether appends should be refused."""
        return disk_used(self._store.folder) >= self.retention.disk_full

    def is_due(self) -> bool:
        """Return whether expired files should be removed now: at the hour, or above a limit."""
        return (
            time.localtime().tm_hour in self.retention.at_hours
            or disk_used(self._store.folder) >= self.retention.disk_used
            or self._is_over()
        )

    def _is_over(self) -> bool:
        """Return whether files are removed before they expire."""
        log, most = self._log.segments, self.retention.most_bytes
        is_too_long = 0 < most < len(log.starts) * log.size
        return is_too_long or disk_used(self._store.folder) >= self.retention.disk_crowded

    def run(self, now: float | None = None) -> Expired:
        """Remove what is expired at `now` (seconds since 1970). Raises OSError."""
        now = time.time() if now is None else now
        log_files = self._expire_log(now)
        queue_files = sum(self._expire_queue(queue) for queue in self._store.queues)
        return Expired(log_files, queue_files, self._expire_index())

    def _expire_log(self, now: float) -> int:
        """Remove log files up to the first that is too young; age is since the last change."""
        segments = self._log.segments

        def is_expired(start: int) -> bool:
            if start + segments.size > self._log.flushed:
                return False
            age = now - segments.path(start).stat().st_mtime
            return age >= self.retention.reserved_seconds or self._is_over()

        return _remove_oldest(segments, is_expired, self.retention.files_at_once)

    def _expire_queue(self, queue: ConsumeQueue) -> int:
        segments, begin = queue.segments, self._log.begin

        def is_expired(start: int) -> bool:
            last = queue.unit((start + segments.size) // UNIT - 1)
            return last is not None and (last.is_filler or last.offset < begin)

        return _remove_oldest(segments, is_expired, len(segments.starts))

    def _expire_index(self) -> int:
        index, begin = self._store.index, self._log.begin
        expired = list(takewhile(lambda file: file.header.end_offset < begin, index.files[:-1]))
        for file in expired:
            index.remove(file)
        return len(expired)


def _remove_oldest(segments: Segments, is_expired: Callable[[int], bool], most: int) -> int:
    """Remove files, oldest first, up to the first that is not expired; return their number."""
    removed = 0
    for start in takewhile(is_expired, segments.starts[:-1][:most]):
        segments.remove(start)
        removed += 1
    return removed
