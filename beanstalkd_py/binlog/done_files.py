"""Binlog files that their server no longer needs, and left for the archiver: `binlog.N.done`.

Must not know what is in them.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from beanstalkd_py import symlinks
from beanstalkd_py.binlog.layout import done_number


@dataclass(frozen=True, slots=True)
class DoneFile:
    """One such file; `size` is bytes on the disk."""

    path: Path
    number: int
    size: int


def list_done_files(folder: Path) -> list[DoneFile]:
    """Those of a folder, oldest first. OSError."""
    found = []
    with os.scandir(folder) as items:
        for item in items:
            number = done_number(item.name)
            if number is None:
                continue
            with contextlib.suppress(FileNotFoundError):
                size = item.stat(follow_symlinks=False).st_blocks * 512
                found.append(DoneFile(Path(item.path), number, size))
    return sorted(found, key=lambda each: each.number)


def remove_files(files: list[DoneFile]) -> None:
    """Removes them in this order; those that have gone already do not matter. OSError."""
    for each in files:
        symlinks.remove(each.path, missing_ok=True)
