"""Keeping binlog files that the server removes: each gets a second name as soon as it is there.

So the folder has every entry in the end, and the copies that compaction made besides. Put back, an
old file changes nothing for who reads all files in order: later entries say what became of its
jobs.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path

_BINLOG = re.compile(r"binlog\.[1-9]\d*")
SUFFIX = ".kept"


class WorkerSupervisor:
    """The names are in a folder beside `folder`, which is on the same file system."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept = folder.with_name(folder.name + SUFFIX)
        self._seen: set[str] = set()

    def look(self) -> None:
        """To be called more often than files are filled: one that has only ends goes at once."""
        for folder in self._folders():
            with os.scandir(self._folder / folder) as names:
                new = [
                    f"{folder}{entry.name}"
                    for entry in names
                    if _BINLOG.fullmatch(entry.name) and f"{folder}{entry.name}" not in self._seen
                ]
            for name in new:
                self._keep(name)

    def _folders(self) -> list[str]:
        """The folder itself, or its shards, each as what stands before a file's name."""
        return ["", *(f"{path.name}/" for path in self._folder.glob("shard-[0-9][0-9][0-9]"))]

    def _keep(self, name: str) -> None:
        there = self._kept / name
        there.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # removed before we came: a spare one
            os.link(self._folder / name, there)
            self._seen.add(name)

    def put_back(self) -> int:
        """Once the server has stopped: removed files are there again; how many."""
        back = 0
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
            # One with a higher number was a spare that nothing was written to.
            if number < highest[folder] and not (self._folder / name).exists():
                os.link(self._kept / name, self._folder / name)
                back += 1
        self.forget()
        return back

    def forget(self) -> None:
        """Gives up the second names."""
        shutil.rmtree(self._kept, ignore_errors=True)
