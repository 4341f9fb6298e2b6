"""Names of the files in a store's folder.

They are RocketMQ's, except `store.json`, `dispatched` and `setaside`, which RocketMQ ignores.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from beanstalkd_py import symlinks
from beanstalkd_py.errors import StoreUsageError

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
CUT_TAILS = "setaside"

_SEGMENT = re.compile(r"[0-9]{20}")
_INDEX_FILE = re.compile(r"[0-9]{17}")
_QUEUE_ID = re.compile(r"[0-9]+")
_ANY = re.compile(r".*", re.DOTALL)


@contextlib.contextmanager
def refusing_foreign_links(store: str | Path) -> Iterator[None]:
    """Convert the OSError for a symbolic link of another user to StoreUsageError."""
    try:
        yield
    except OSError as error:
        if error.errno != symlinks.UNTRUSTED:
            raise
        raise StoreUsageError(f"cannot open history store {store}: {error.strerror}") from error


def check_is_store(folder: Path) -> None:
    """Raise StoreUsageError if the folder has no log, OSError for a link of another user."""
    log = folder / COMMIT_LOG
    if not log.is_dir():
        raise StoreUsageError(f"{folder} is no history store: it has no folder commitlog")
    os.close(symlinks.open_folder(log))


def segment_name(start: int) -> str:
    return f"{start:020d}"


def segment_starts(folder: Path) -> list[int]:
    """Return the start offsets of a folder's files in order; other names are ignored."""
    return [int(name) for name in _names(folder, _SEGMENT)]


def index_names(folder: Path) -> list[str]:
    """Return the names of index files, oldest first: yyyyMMddHHmmssSSS."""
    return _names(folder, _INDEX_FILE)


def queue_folders(store: Path, root_name: str = CONSUME_QUEUE) -> list[tuple[str, int]]:
    """Return the topics and queue ids that have a folder, sorted."""
    root = store / root_name
    return sorted(
        (topic, int(name)) for topic in _names(root) for name in _names(root / topic, _QUEUE_ID)
    )


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents durably."""
    if not folder.is_dir():
        make_folder(folder.parent)
        with contextlib.suppress(FileExistsError):
            symlinks.make_folder(folder)
        symlinks.sync_folder(folder.parent)


def open_to_write(path: Path, flags: int = 0) -> int:
    """Open a file for reading and writing, create it if needed; refuse symbolic links."""
    return symlinks.open_file(path, os.O_RDWR | os.O_CREAT | flags, 0o644)


def overwrite(path: Path, data: bytes) -> None:
    """Write a small file of fixed size in place and sync it. Raises OSError."""
    fd = open_to_write(path)
    try:
        if os.pwrite(fd, data, 0) != len(data):
            raise OSError(f"cannot write {path} completely")
        os.fsync(fd)
    finally:
        os.close(fd)


def write_file(path: Path, data: bytes) -> None:
    """Write a small file atomically and durably."""
    staged = path.with_name(path.name + ".new")
    with os.fdopen(symlinks.create_file(staged, 0o644), "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    symlinks.rename(staged, path)
    symlinks.sync_folder(path.parent)


def _names(folder: Path, pattern: re.Pattern[str] = _ANY) -> list[str]:
    """Return the matching names in a folder, sorted; none if there is no folder."""
    try:
        return sorted(path.name for path in folder.iterdir() if pattern.fullmatch(path.name))
    except (FileNotFoundError, NotADirectoryError):
        return []
