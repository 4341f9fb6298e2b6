"""A folder's files as they are on disk at a moment, and as a crash would leave them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from binlog.reader import files

WAIT_S = 10.0
EMPTY = b"\x07\0\0\0" + bytes(100)

Snapshot = dict[str, bytes]


def take(folder: Path) -> Snapshot:
    """Every binlog file; one that vanishes meanwhile is not in it."""
    found = {}
    for path in files(folder):
        try:
            found[path.name] = path.read_bytes()
        except FileNotFoundError:
            continue
    return found


def lay_out(folder: Path, contents: Snapshot) -> None:
    """Makes the folder hold exactly this."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in contents.items():
        (folder / name).write_bytes(data)


def after_power_loss(synced: Snapshot, now: Snapshot) -> Snapshot:
    """The worst of what a disk may show: removals and new names kept, unsynced bytes lost."""
    return {name: synced.get(name, EMPTY) for name in now}


def wait_until(condition: Callable[[], bool]) -> None:
    """The file thread works on its own: comes back when what it must bring about is there."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, "it never happens"
        time.sleep(0.002)


def numbers(folder: Path) -> list[int]:
    """The N of every binlog.N."""
    return [int(path.suffix[1:]) for path in files(folder)]
