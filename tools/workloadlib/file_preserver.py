"""Preserves binlog files that the server removes, by a second link to each.

The restored folder has every entry, and the copies by compaction besides. Older files do not change
the result of recovery, because later entries have the ends of their jobs.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path

_BINLOG = re.compile(r"binlog\.[1-9]\d*")
SUFFIX = ".kept"


class FilePreserver:
    """Links files in a folder next to `folder`, on the same file system."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept = folder.with_name(folder.name + SUFFIX)
        self._seen: set[str] = set()

    def scan(self) -> None:
        """Link new files. Must run more often than the server fills a file."""
        for folder in self._folders():
            with os.scandir(self._folder / folder) as names:
                new = [
                    f"{folder}{entry.name}"
                    for entry in names
                    if _BINLOG.fullmatch(entry.name) and f"{folder}{entry.name}" not in self._seen
                ]
            for name in new:
                self._link(name)

    def _folders(self) -> list[str]:
        """Return the prefixes of file names: none, and one for each shard."""
        return ["", *(f"{path.name}/" for path in self._folder.glob("shard-[0-9][0-9][0-9]"))]

    def _link(self, name: str) -> None:
        link = self._kept / name
        link.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # a preallocated file was removed
            os.link(self._folder / name, link)
            self._seen.add(name)

    def restore(self) -> int:
        """Restore removed files after the server has stopped; return their number."""
        restored = 0
        highest: dict[str, int] = {}
        for folder in self._folders():
            numbers = [
                int(path.suffix[1:])
                for path in (self._folder / folder).iterdir()
                if _BINLOG.fullmatch(path.name)
            ]
            highest[folder] = max(numbers, default=0)
        for name in sorted(self._seen):
            folder, number = name[: name.rfind("/") + 1], int(name.rpartition(".")[2])
            # A file with a higher number was preallocated and never written to.
            if number < highest[folder] and not (self._folder / name).exists():
                os.link(self._kept / name, self._folder / name)
                restored += 1
        self.discard()
        return restored

    def discard(self) -> None:
        shutil.rmtree(self._kept, ignore_errors=True)
