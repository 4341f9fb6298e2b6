"""A limit of what waits for the archiver, so that a full history never stops the queue.

Files that binlogs no longer need wait in their folders until they are archived. More than the
limit of them, or any while a worker finds no room for its binlog, and the oldest go unread. Must
not know why the archiver is behind, nor what is in the files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from beanstalkd_py.binlog.done_files import DoneFile, list_done_files, remove_files
from beanstalkd_py.plural import counted
from beanstalkd_py.server.logging.setup import LOGGER

SPARE_BYTES = 1 << 16
"""For what a file system has to write besides."""


class BacklogLimit:
    """The limit of one server.

    `is_refusing` tells of a folder, by its index, that no further file of `file_bytes`
    can be made there.
    `waiting_bytes` is what was there at the last look, `lost_files` and `lost_bytes` what has gone.
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

    def look(self) -> None:
        """Removes what is too much. OSError."""
        waiting = [list_done_files(folder) for folder in self._folders]
        for index, folder in enumerate(self._folders):
            if self._is_refusing(index) and not self._has_room(folder):
                files = waiting[index] or self._beside(folder, waiting)
                if files:
                    self._lose(files, 1, f"there is no room for the binlog of worker {index}")
        self.waiting_bytes = sum(each.size for files in waiting for each in files)
        while self.waiting_bytes > self.most_bytes:
            largest = max(waiting, key=lambda files: sum(each.size for each in files))
            over = self.waiting_bytes - self.most_bytes
            count = 0
            while count < len(largest) and over > 0:
                over -= largest[count].size
                count += 1
            self.waiting_bytes -= self._lose(largest, count, "more than the limit wait for it")

    def _has_room(self, folder: Path) -> bool:
        """Whether another file fits there, and the worker has only not noticed yet."""
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize > self._file_bytes + SPARE_BYTES

    def _beside(self, folder: Path, waiting: list[list[DoneFile]]) -> list[DoneFile]:
        """Files of another folder on the same disk, if there are any."""
        device = folder.stat().st_dev
        for other, files in zip(self._folders, waiting, strict=True):
            if files and other.stat().st_dev == device:
                return files
        return []

    def _lose(self, files: list[DoneFile], count: int, reason: str) -> int:
        """Removes the first of them; how many bytes it was."""
        lost = files[:count]
        del files[:count]
        remove_files(lost)
        size = sum(each.size for each in lost)
        self.lost_files += len(lost)
        self.lost_bytes += size
        LOGGER.warning(
            "removed %s (%s to %s, %s) before the archiver was done: %s;"
            " of jobs that ended in them the history may lack some",
            *(counted(len(lost), "binlog file"), lost[0].path, lost[-1].path.name),
            *(counted(size, "byte"), reason),
        )
        return size
