"""Limits the backlog of the archiver, so that a full history never stops the queue.

Done files wait in the binlog folders until they are archived. The oldest are removed unread when
they exceed the limit, or when a worker has no space for its binlog.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from beanstalkd_py.binlog.done_files import DoneFile, list_done_files, remove_files
from beanstalkd_py.plural import counted
from beanstalkd_py.server.logging.setup import LOGGER

SPARE_BYTES = 1 << 16
"""For the file system's metadata."""


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

    def enforce(self) -> None:
        """Remove files beyond the limit. Raises OSError."""
        waiting = [list_done_files(folder) for folder in self._folders]
        for index, folder in enumerate(self._folders):
            if self._is_refusing(index) and not self._has_space(folder):
                files = waiting[index] or self._files_on_same_disk(folder, waiting)
                if files:
                    self._remove(files, 1, f"no space for the binlog of worker {index}")
        self.waiting_bytes = sum(each.size for files in waiting for each in files)
        while self.waiting_bytes > self.most_bytes:
            largest = max(waiting, key=lambda files: sum(each.size for each in files))
            over = self.waiting_bytes - self.most_bytes
            count = 0
            while count < len(largest) and over > 0:
                over -= largest[count].size
                count += 1
            self.waiting_bytes -= self._remove(largest, count, "backlog exceeds the limit")

    def _has_space(self, folder: Path) -> bool:
        """Return whether a file fits, so that the worker will recover by itself."""
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize > self._file_bytes + SPARE_BYTES

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
        size = sum(each.size for each in lost)
        self.lost_files += len(lost)
        self.lost_bytes += size
        LOGGER.warning(
            "removed %s unread (%s to %s, %s): %s;"
            " finished jobs in them are missing from the history",
            *(counted(len(lost), "binlog file"), lost[0].path, lost[-1].path.name),
            *(counted(size, "byte"), reason),
        )
        return size
