"""What a binlog folder looks like: whole, as C beanstalkd has it, or divided into shards.

Whole, generation zero: `binlog.N` and `lock`, nothing else. Divided: a file `layout` says into how
many shards and by which separator; `shard-000` and so on are whole folders themselves; `lock` is a
symbolic link that nobody can open, so that C beanstalkd refuses to start there rather than begin an
empty queue; `layout.lock` is locked by whoever serves or changes the folder.

Knows names and contents; what changes them is in resharding.py.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beanstalkd_py import errors, symlinks
from beanstalkd_py.binlog.lock_wait import LOCK_PATIENCE_S, locked, patiently
from beanstalkd_py.binlog.ownership import creating_as_owner_of
from beanstalkd_py.binlog.regular_file import open_regular, read_regular

LAYOUT = "layout"
LOCK = "lock"
TOP_LOCK = "layout.lock"
GUARD_TARGET = "divided-into-shards--run--beanstalkd-py-binlog-reshard/lock"
"""Where `lock` of a divided folder leads: nowhere, in words for whoever looks."""
STAGING = "reshard.new"
"""A generation being written: void after a crash."""
STAGED = "reshard.done"
"""A generation in force from its rename on, whose files are not yet all in their places."""

HISTORY_ID = "history.id"
"""What the archiver calls a whole folder; it is the folder's, and goes with its files."""

FORMAT = 1
MOST_SHARDS = 255

_SHARD = re.compile(r"shard-\d{3}")
_BINLOG = re.compile(r"binlog\.[1-9]\d*")
_DONE = re.compile(r"binlog\.([1-9]\d*)\.done")


@dataclass(frozen=True, slots=True)
class Layout:
    """How tubes are divided. `colocate` ends the part of a tube's name that decides its shard."""

    workers: int = 1
    colocate: bytes | None = None

    @classmethod
    def wanted(cls, workers: int, colocate: bytes | None) -> Layout:
        """Of one shard, and of an empty separator, there is only one kind."""
        return cls(workers, colocate or None) if workers > 1 else cls()

    def __str__(self) -> str:
        text = f"{self.workers} worker{'s' if self.workers > 1 else ''}"
        return text if self.colocate is None else f"{text} by {self.colocate.decode('latin-1')!r}"

    def to_bytes(self) -> bytes:
        """As it is written; any bytes of the separator survive."""
        colocate = None if self.colocate is None else self.colocate.decode("latin-1")
        values = {"format": FORMAT, "workers": self.workers, "colocate": colocate}
        return json.dumps(values).encode() + b"\n"


WHOLE = Layout()


def read_layout(folder: Path) -> Layout | None:
    """What the file `layout` in this folder says; None without one. Raises BinlogFolderError."""
    path = folder / LAYOUT
    try:
        values: Any = json.loads(read_regular(path))
    except FileNotFoundError:
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
    """The layout that the binlogs in this folder have; None if there are none.

    A resharding that a crash interrupted counts once its new files are in force. Takes no lock.
    Raises BinlogFolderError.
    """
    layout = read_layout(top / STAGED) or read_layout(top)
    if layout is not None:
        return layout
    try:
        return WHOLE if binlog_files(top) else None
    except OSError as error:
        text = f"cannot read binlog folder {top}: {error.strerror}"
        raise errors.BinlogFolderError(text) from error


def folders_of(top: Path, layout: Layout) -> list[Path]:
    """The folder of each worker, in their order."""
    return [top] if layout == WHOLE else [top / shard_name(i) for i in range(layout.workers)]


def shard_name(index: int) -> str:
    """The name of a shard's folder."""
    return f"shard-{index:03d}"


def shard_folders(top: Path) -> list[Path]:
    """Every shard's folder that is there."""
    return sorted(path for path in top.iterdir() if _SHARD.fullmatch(path.name) and path.is_dir())


def binlog_files(folder: Path) -> list[Path]:
    """Its files of entries, oldest first."""
    found = [path for path in folder.iterdir() if _BINLOG.fullmatch(path.name)]
    return sorted(found, key=lambda path: int(path.suffix[1:]))


def done_number(name: str) -> int | None:
    """The number of a file that a server has handed over to the archiver; None for other names."""
    found = _DONE.fullmatch(name)
    return int(found[1]) if found else None


def is_servers_own(name: str) -> bool:
    """Whether a server writes files of this name to a whole folder, so that they may go."""
    if name in (LOCK, HISTORY_ID):
        return True
    return _BINLOG.fullmatch(name.removesuffix(".new")) is not None


def is_whole(top: Path) -> bool:
    """Whether it is as C beanstalkd has it: a few looks at names, nothing is read or locked."""
    divided = (LAYOUT, STAGED, shard_name(0))
    return not ((top / LOCK).is_symlink() or any(os.path.lexists(top / name) for name in divided))


class FileLock:
    """A write lock on a whole file, as C beanstalkd locks: it ends with the process at the latest.

    A process must not open and close the file otherwise while it has the lock.
    """

    def __init__(self, path: Path, patience_s: float = LOCK_PATIENCE_S) -> None:
        """Makes the file if need be. Raises BinlogLockedError, or BinlogFolderError."""
        self._path = path
        self._fd = -1
        patiently(self._take, patience_s)

    def _take(self) -> None:
        try:
            with creating_as_owner_of(self._path.parent):
                fd = open_regular(self._path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            remedy = _remedy(self._path.parent) if isinstance(error, PermissionError) else ""
            text = f"cannot lock {self._path}: {error.strerror}{remedy}"
            raise errors.BinlogFolderError(text) from error
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it may have removed the file meanwhile: then this lock keeps nobody out.
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
        raise locked(self._path.parent)

    def remove(self) -> None:
        """Removes the file and gives up the lock."""
        symlinks.remove(self._path, missing_ok=True)
        self.close()

    def close(self) -> None:
        """Gives up the lock. Harmless when done twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _remedy(folder: Path) -> str:
    """How root gives a folder's owner what another server has left there as another user."""
    owner = folder.stat()
    return f'; as root, run "chown -R {owner.st_uid}:{owner.st_gid} {folder}"'


def lock_top(top: Path) -> FileLock:
    """Whoever has this lock alone may serve a divided folder, or change what kind it is."""
    return FileLock(top / TOP_LOCK)
