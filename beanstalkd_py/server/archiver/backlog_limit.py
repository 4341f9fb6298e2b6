"""Limits the backlog of the archiver, so that a full history never stops the queue.

Done files wait in the binlog folders until they are archived, and shipped if `pipeline ship` runs
there. When they exceed the limit, or when a worker has no space for its binlog, they no longer wait
for shipping. If they still exceed it, the oldest are removed unread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from beanstalkd_py.archiver.shipped_files import remove_shipped
from beanstalkd_py.binlog.done_files import DoneFile, list_done_files, remove_files
from beanstalkd_py.binlog.layout import top_of
from beanstalkd_py.plural import counted
from beanstalkd_py.server.logging.setup import LOGGER

METADATA_BYTES = 1 << 16
"""Space that the file system needs besides a file's contents."""
RELEASE_CHECKS = 12
"""Checks during which the archiver may remove files that were kept for shipping."""


class BacklogLimit:
    """The limit of one server.

    `is_refusing` returns whether the worker of a folder, by its index, has no space for another
    file of `file_bytes`. `waiting_bytes` is the backlog at the last check; `lost_files` and
    `lost_bytes` count the files removed unread.
    """

    def __init__(
        self,
        folders: Iterable[Path],
        most_bytes: int,
        file_bytes: int,
        is_refusing: Callable[[int], bool],
    ) -> None:
        self.most_bytes = most_bytes
        self._file_bytes = file_bytes
        self.waiting_bytes = 0
        self.lost_files = 0
        self.lost_bytes = 0
        self._folders = list(folders)
        self._is_refusing = is_refusing
        self._checks_to_wait = 0

    def enforce(self) -> None:
        """Remove files beyond the limit. Raises OSError."""
        waiting = [list_done_files(folder) for folder in self._folders]
        self.waiting_bytes = sum(map(_size_of, waiting))
        full = [
            worker
            for worker, folder in enumerate(self._folders)
            if self._is_refusing(worker) and not self._has_space(folder)
        ]
        if full or self.waiting_bytes > self.most_bytes:
            if self._release_unshipped():
                self._checks_to_wait = RELEASE_CHECKS
            if self._checks_to_wait > 0:
                self._checks_to_wait -= 1
                return
        for worker in full:
            files = waiting[worker] or self._files_on_same_disk(self._folders[worker], waiting)
            if files:
                reason = f"no space for the binlog of worker {worker}"
                self.waiting_bytes -= self._remove(files, 1, reason)
        while self.waiting_bytes > self.most_bytes:
            largest = max(waiting, key=_size_of)
            excess = self.waiting_bytes - self.most_bytes
            count = 0
            while count < len(largest) and excess > 0:
                excess -= largest[count].size
                count += 1
            self.waiting_bytes -= self._remove(largest, count, "backlog exceeds the limit")

    def _release_unshipped(self) -> bool:
        """Let the archiver remove unshipped files; return whether there were any."""
        released = [top for top in {*map(top_of, self._folders)} if remove_shipped(top)]
        for top in released:
            LOGGER.warning(
                "%s: no longer keeping binlog files that 'pipeline ship' has not copied, because"
                " the backlog exceeds the limit or the binlog has no space",
                top,
            )
        return bool(released)

    def _has_space(self, folder: Path) -> bool:
        """Return whether a binlog file fits, so that the worker needs no help."""
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize > self._file_bytes + METADATA_BYTES

    def _files_on_same_disk(self, folder: Path, waiting: list[list[DoneFile]]) -> list[DoneFile]:
        device = folder.stat().st_dev
        for other, files in zip(self._folders, waiting, strict=True):
            if files and other.stat().st_dev == device:
                return files
        return []

    def _remove(self, files: list[DoneFile], count: int, reason: str) -> int:
        """Remove the first files; return their size."""
        lost = files[:count]
        del files[:count]
        remove_files(lost)
        size = _size_of(lost)
        self.lost_files += len(lost)
        self.lost_bytes += size
        LOGGER.warning(
            "removed %s unread (%s to %s, %s): %s;"
            " finished jobs in them are missing from the history",
            *(counted(len(lost), "binlog file"), lost[0].path, lost[-1].path.name),
            *(counted(size, "byte"), reason),
        )
        return size


def _size_of(files: Iterable[DoneFile]) -> int:
    return sum(file.size for file in files)
