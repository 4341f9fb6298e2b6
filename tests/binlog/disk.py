"""Copies of a folder's files at a moment, and the files that a crash would leave."""

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
    """Read every binlog file; skip files that vanish during the read."""
    found = {}
    for path in files(folder):
        try:
            found[path.name] = path.read_bytes()
        except FileNotFoundError:
            continue
    return found


def lay_out(folder: Path, contents: Snapshot) -> None:
    """Make the folder hold exactly these files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in contents.items():
        (folder / name).write_bytes(data)


def after_power_loss(synced: Snapshot, now: Snapshot) -> Snapshot:
    """Return the worst result of a power cut: name changes kept, unsynced bytes lost."""
    return {name: synced.get(name, EMPTY) for name in now}


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the file thread has made the condition true."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, "the condition never became true"
        time.sleep(0.002)


def numbers(folder: Path) -> list[int]:
    """Return the N of every binlog.N."""
    return [int(path.suffix[1:]) for path in files(folder)]
