"""Where things are in the folder of a store, and how its files are named.

The names are RocketMQ's, but for `store.json`, `dispatched` and `setaside`; it does not look at
those.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from beanstalkd_py import symlinks

COMMIT_LOG = "commitlog"
CONSUME_QUEUE = "consumequeue"
BATCH_QUEUES = "batchconsumequeue"
ROCKSDB_QUEUES = "consumequeue_rocksdb"
QUEUE_EXTENSIONS = "consumequeue_ext"
INDEX = "index"
CHECKPOINT = "checkpoint"
ABORT = "abort"
LOCK = "lock"
DISPATCHED = "dispatched"
SET_ASIDE = "setaside"

_SEGMENT = re.compile(r"[0-9]{20}")
_INDEX_FILE = re.compile(r"[0-9]{17}")


def segment_name(start: int) -> str:
    """The name of the file whose first byte has this offset."""
    return f"{start:020d}"


def segment_starts(folder: Path) -> list[int]:
    """Offsets of a folder's files, in order. None without a folder; other names are left alone."""
    return [int(name) for name in _names(folder, _SEGMENT)]


def index_names(folder: Path) -> list[str]:
    """Index files from the oldest on: yyyyMMddHHmmssSSS."""
    return _names(folder, _INDEX_FILE)


def queue_folders(store: Path, root_name: str = CONSUME_QUEUE) -> list[tuple[str, int]]:
    """Topics and queue ids that have a folder, in order."""
    found = []
    root = store / root_name
    for topic in _list(root):
        found += [
            (topic, int(name)) for name in _list(root / topic) if name.isascii() and name.isdigit()
        ]
    return sorted(found)


def sync_folder(folder: Path) -> None:
    """What was created or removed in it is on disk afterwards."""
    symlinks.sync_folder(folder)


def make_folder(folder: Path) -> None:
    """Creates it, and parents that are missing; all on disk afterwards."""
    if not folder.is_dir():
        make_folder(folder.parent)
        with contextlib.suppress(FileExistsError):
            symlinks.make_folder(folder)
        sync_folder(folder.parent)


def open_to_write(path: Path, flags: int = 0) -> int:
    """A file to read and write, made if need be. OSError: it is a symbolic link, among others."""
    return symlinks.open_file(path, os.O_RDWR | os.O_CREAT | flags, 0o644)


def write_file(path: Path, data: bytes) -> None:
    """A small file, wholly or not at all; on disk afterwards."""
    staged = path.with_name(path.name + ".new")
    with os.fdopen(open_to_write(staged, os.O_TRUNC), "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    symlinks.rename(staged, path)
    sync_folder(path.parent)


def _list(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _names(folder: Path, pattern: re.Pattern[str]) -> list[str]:
    return [name for name in _list(folder) if pattern.fullmatch(name)]
