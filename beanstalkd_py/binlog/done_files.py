"""Done files `binlog.N.done`: binlog files that only the archiver still needs."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from beanstalkd_py import symlinks

DONE_SUFFIX = ".done"
_DONE = re.compile(r"binlog\.([1-9]\d*)\.done")


@dataclass(frozen=True, slots=True)
class DoneFile:
    """One done file; `size` is its disk space in bytes."""

    path: Path
    number: int
    size: int


def list_done_files(folder: Path) -> list[DoneFile]:
    """Return the done files of a folder, oldest first. Raises OSError."""
    files = []
    with os.scandir(folder) as items:
        for item in items:
            if (name := _DONE.fullmatch(item.name)) is None:
                continue
            with contextlib.suppress(FileNotFoundError):
                size = item.stat(follow_symlinks=False).st_blocks * 512
                files.append(DoneFile(Path(item.path), int(name[1]), size))
    return sorted(files, key=lambda each: each.number)


def remove_files(files: list[DoneFile]) -> None:
    """Remove files in this order, ignoring missing ones. Raises OSError."""
    for each in files:
        symlinks.remove(each.path, missing_ok=True)
