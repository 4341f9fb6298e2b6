"""Names and contents of a binlog folder: whole, as C beanstalkd writes it, or divided into shards.

A whole folder has `binlog.N` and `lock`. A divided one has a file `layout` with the number of
shards and the separator; `shard-000` and so on are whole folders. Its `lock` is a symbolic link
that cannot be opened, so that C beanstalkd refuses to start there. `layout.lock` is locked by the
process that serves or changes the folder. reshard.py changes layouts.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beanstalkd_py import errors, symlinks
from beanstalkd_py.binlog.lock_wait import LOCK_TIMEOUT_S, locked_error, retry_while_locked
from beanstalkd_py.binlog.ownership import creating_as_owner_of
from beanstalkd_py.regular_file import open_or_create, read_regular

LAYOUT = "layout"
LOCK = "lock"
TOP_LOCK = "layout.lock"
GUARD_TARGET = "divided-into-shards--run--beanstalkd-py-binlog-reshard/lock"
"""Target of a divided folder's `lock`. It does not exist; its name has the command to run."""
STAGING = "reshard.new"
"""A generation being written; removed after a crash."""
STAGED = "reshard.done"
"""A generation that is valid since its rename, before its files are moved into place."""

HISTORY_ID = "history.id"
"""Has the folder identity that the archiver uses."""

SHIPPED = "shipped"
"""Has the numbers of the last files that `pipeline ship` has copied, for all shards."""

POLICIES = "tube-policies.json"
"""Has the tube policies that were set online."""

SCHEDULES = "schedules.json"
"""Has the last completed tick of each schedule."""

REPLICA = "replica.json"
"""Has the name of the replicated queue, and how much of its streams the binlog files contain."""

FORMAT = 1
MOST_SHARDS = 255
HIGHEST_NUMBER = 2**31 - 1
"""C beanstalkd counts files in an int."""

_SHARD = re.compile(r"shard-\d{3}")
_BINLOG = re.compile(r"binlog\.[1-9]\d*")
_KEPT = re.compile(r"binlog\.([1-9]\d{0,9})\.(bad|done).*")


@contextlib.contextmanager
def reading(top: Path) -> Iterator[None]:
    """Turn an OSError into a BinlogFolderError that names the folder."""
    try:
        yield
    except OSError as error:
        text = f"cannot read binlog folder {top}: {error.strerror}"
        raise errors.BinlogFolderError(text) from error


@dataclass(frozen=True, slots=True)
class Layout:
    """The division of tubes. `colocate` ends the part of a tube's name that decides its shard."""

    workers: int = 1
    colocate: bytes | None = None

    @classmethod
    def wanted(cls, workers: int, colocate: bytes | None) -> Layout:
        """Return the layout for these options; one worker needs no separator."""
        return cls(workers, colocate or None) if workers > 1 else cls()

    def __str__(self) -> str:
        text = f"{self.workers} worker{'s' if self.workers > 1 else ''}"
        return text if self.colocate is None else f"{text} by {self.colocate.decode('latin-1')!r}"

    def to_bytes(self) -> bytes:
        """Encode the file `layout`; the separator may be any bytes."""
        colocate = None if self.colocate is None else self.colocate.decode("latin-1")
        values = {"format": FORMAT, "workers": self.workers, "colocate": colocate}
        return json.dumps(values).encode() + b"\n"


WHOLE = Layout()


def read_layout(folder: Path) -> Layout | None:
    """Read the file `layout` of a folder; None if it does not exist. Raises BinlogFolderError."""
    path = folder / LAYOUT
    try:
        values: Any = json.loads(read_regular(path))
    except FileNotFoundError:
        if path.is_symlink():
            text = f"{path} is a symbolic link to nothing; restore its target, or remove it"
            raise errors.BinlogFolderError(text) from None
        return None
    except OSError as error:
        raise errors.BinlogFolderError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise errors.BinlogFolderError(f"{path} is damaged: {error}") from error
    match values:
        case {"format": 1, "workers": int(workers), "colocate": str() | None as colocate}:
            if 1 <= workers <= MOST_SHARDS:
                separator = None if colocate is None else colocate.encode("latin-1")
                return Layout(workers, separator)
    raise errors.BinlogFolderError(f"{path} is none that this version understands: {values!r:.80}")


def present_layout(top: Path) -> Layout | None:
    """Return the layout of the binlogs in a folder; None if there are none.

    An interrupted reshard counts once its new files are valid. Takes no lock. Raises
    BinlogFolderError.
    """
    layout = read_layout(top / STAGED) or read_layout(top)
    if layout is not None:
        return layout
    with reading(top):
        return WHOLE if binlog_files(top) else None


def folders_of(top: Path, layout: Layout) -> list[Path]:
    """Return the folder of each worker, in their order."""
    return [top] if layout == WHOLE else [top / shard_name(i) for i in range(layout.workers)]


def shard_name(index: int) -> str:
    return f"shard-{index:03d}"


def shard_folders(top: Path) -> list[Path]:
    return sorted(path for path in top.iterdir() if _SHARD.fullmatch(path.name) and path.is_dir())


def top_of(folder: Path) -> Path:
    """Return the folder above a shard, or a whole folder itself."""
    return folder.parent if _SHARD.fullmatch(folder.name) else folder


def binlog_files(folder: Path) -> list[Path]:
    """Return the binlog files of a folder, oldest first."""
    paths = [path for path in folder.iterdir() if _BINLOG.fullmatch(path.name)]
    return sorted(paths, key=number_of)


def number_of(path: Path) -> int:
    """Return the number of a binlog file."""
    return int(path.suffix[1:])


def highest_kept(folder: Path) -> int:
    """Return the highest number of a file that was renamed to .bad or .done; 0 if there is none.

    New files get higher numbers, because an archiver orders such files by their numbers.
    """
    kept = [_KEPT.fullmatch(path.name) for path in folder.iterdir()]
    numbers = [int(match[1]) for match in kept if match is not None]
    return max((number for number in numbers if number <= HIGHEST_NUMBER), default=0)


def check_highest_number(folder: Path, highest: int) -> None:
    """Raise BinlogFolderError if a new file has no number that a server reads."""
    if highest > HIGHEST_NUMBER:
        raise errors.BinlogFolderError(
            f"binlog folder {folder} has no numbers left for new files; move binlog.*.bad and"
            " binlog.*.done to another place"
        )


def is_server_file(name: str) -> bool:
    """Return whether a server writes files of this name, so that they may be removed."""
    if name in (LOCK, HISTORY_ID):
        return True
    return _BINLOG.fullmatch(name.removesuffix(".new")) is not None


def check_not_replicated(folder: Path) -> None:
    """Raise BinlogFolderError if the folder, or the folder of this shard, is a replica.

    Changes that bypass the replicated log would be lost, or lose jobs.
    """
    if os.path.lexists(top_of(folder) / REPLICA):
        raise errors.BinlogFolderError(
            f"binlog folder {folder} is a replica ({REPLICA}); serve it with --replicate and its"
            " number of --workers, or remove that file to use the folder on its own"
        )


def is_whole(top: Path) -> bool:
    """Return whether the folder is undivided, by its file names only."""
    divided = (LAYOUT, STAGED, shard_name(0))
    return not ((top / LOCK).is_symlink() or any(os.path.lexists(top / name) for name in divided))


class FileLock:
    """A write lock on a whole file, as C beanstalkd locks; the process's end releases it.

    The process must not open and close the file elsewhere while it holds the lock.
    """

    def __init__(self, path: Path, timeout_s: float = LOCK_TIMEOUT_S) -> None:
        """Create and lock the file. Raises BinlogLockedError, BinlogFolderError."""
        self._path = path
        self._fd = -1
        retry_while_locked(self._take, timeout_s)

    def _take(self) -> None:
        try:
            with creating_as_owner_of(self._path.parent):
                fd = open_or_create(self._path)
        except OSError as error:
            remedy = _remedy(self._path.parent) if isinstance(error, PermissionError) else ""
            text = f"cannot lock {self._path}: {error.strerror}{remedy}"
            raise errors.BinlogFolderError(text) from error
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The previous holder may have removed the file, and then this lock excludes nobody.
            if os.path.samestat(os.fstat(fd), self._path.stat()):
                self._fd = fd
                return
        except (BlockingIOError, PermissionError, FileNotFoundError):
            pass
        except OSError as error:
            os.close(fd)
            text = f"cannot lock {self._path}: {error.strerror}"
            raise errors.BinlogFolderError(text) from error
        os.close(fd)
        raise locked_error(self._path.parent)

    def remove(self) -> None:
        symlinks.remove(self._path, missing_ok=True)
        self.close()

    def close(self) -> None:
        """Release the lock; may be repeated."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _remedy(folder: Path) -> str:
    """Return the command that gives a folder's files to its owner."""
    owner = folder.stat()
    return f'; as root, run "chown -R {owner.st_uid}:{owner.st_gid} {folder}"'


def lock_top(top: Path) -> FileLock:
    """Lock a divided folder for serving it or changing its layout."""
    return FileLock(top / TOP_LOCK)
