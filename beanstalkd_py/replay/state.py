"""Progress of a replay in a file that is valid after a kill at any moment.

The file is text. Its first line identifies the replay. Three slots for the progress follow, each
with a checksum. One has what was synced last, and is not written before something newer is synced;
the replay writes the other two in turn, so that one is valid after a kill. A process locks the file
while it uses the file.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from beanstalkd_py import errors
from beanstalkd_py.history.files.open_files import write_all

VERSION = 1
SLOT_BYTES = 4096
"""Size of a slot; `done_beyond` has at most 128 offsets."""
SLOTS = 3
SYNC_S = 1.0
"""Interval between syncs. A kill loses no progress, a power cut at most this much."""
BLANK = (b" " * (SLOT_BYTES - 1) + b"\n") * SLOTS


@dataclass(frozen=True, slots=True)
class Replay:
    """Identity of a replay: `key`, and its resolution at the first start.

    `since`, `until` and `filters` are as the user gave them. They resolve to `begin`..`end`
    (milliseconds) and `log_begin`..`log_end` (offsets), with `total` messages.
    """

    store: str
    topic: str
    into: str
    since: str
    until: str
    filters: list[str]
    begin: int = 0
    end: int = 0
    log_begin: int = 0
    log_end: int = 0
    total: int = 0
    begun_at: float = 0.0

    @property
    def key(self) -> tuple[object, ...]:
        return (self.store, self.topic, self.into, self.since, self.until, tuple(self.filters))


@dataclass(slots=True)
class ReplayState:
    """Progress: the messages before log offset `offset` and those at `done_beyond` are done.

    The other fields are numbers of messages; `looked_at` is their total, `put` the jobs put.
    """

    offset: int = 0
    done_beyond: list[int] = field(default_factory=list)
    looked_at: int = 0
    put: int = 0
    put_bytes: int = 0
    left_out: int = 0
    too_big: int = 0
    damaged: int = 0
    expired: int = 0
    finished_at: float = 0.0

    @property
    def is_finished(self) -> bool:
        return self.finished_at > 0

    @property
    def missing(self) -> int:
        """The number of selected messages that could not be put."""
        return self.left_out + self.too_big + self.damaged + self.expired


def load(path: Path) -> tuple[Replay, ReplayState] | None:
    """Read a file; None if it is missing or its replay has not put anything yet.

    Raises ToolUsageError if the file is invalid or cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.ToolUsageError(f"cannot read {path}: {error.strerror}") from error
    return _decode(path, data)


def _decode(path: Path, data: bytes) -> tuple[Replay, ReplayState] | None:
    line = data.partition(b"\n")[0]
    identity = _checked(line)
    # The slots are blank until the first line is synced.
    if identity is None and data.endswith(BLANK) and len(data) % SLOT_BYTES == 0:
        return None
    if identity is None or identity.pop("version", None) != VERSION:
        text = f"{path} is not the state of a replay; remove it, or use another --state FILE"
        raise errors.ToolUsageError(text)
    state = ReplayState()
    begin = _slots_begin(len(line) + 1)
    if slots := _slots(data, begin):
        newest = max(slots.values(), key=lambda slot: int(slot["number"]))
        del newest["number"]
        state = ReplayState(**newest)
    elif sum(bool(slot.strip()) for slot in _pieces(data, begin)) > 1:  # the first one is synced
        text = f"the progress in {path} is damaged; remove it to put all jobs again"
        raise errors.ToolUsageError(text)
    return Replay(**identity), state


def _slots(data: bytes, begin: int) -> dict[int, dict[str, Any]]:
    """Return the valid records by slot. A file of an earlier version has two slots."""
    records = enumerate(map(_checked, _pieces(data, begin)))
    return {slot: record for slot, record in records if record}


def _pieces(data: bytes, begin: int) -> list[bytes]:
    starts = range(begin, begin + SLOTS * SLOT_BYTES, SLOT_BYTES)
    return [data[start : start + SLOT_BYTES] for start in starts]


def _slots_begin(line_bytes: int) -> int:
    return -(-line_bytes // SLOT_BYTES) * SLOT_BYTES


def _checked(data: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(data)
        crc = record.pop("crc")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return record if zlib.crc32(json.dumps(record).encode()) == crc else None


def _line(record: dict[str, object], size: int) -> bytes:
    text = json.dumps({**record, "crc": zlib.crc32(json.dumps(record).encode())})
    data = text.encode().ljust(size - 1) + b"\n"
    assert len(data) == size, "the record fits"
    return data


def _make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, and sync their names."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        _sync_folder(each.parent)


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(PermissionError):  # a folder that this user cannot list
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


class StateFile:
    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._begin = 0
        self._number = 0
        self._written = 0
        """The slot of the last record."""
        self._synced = 0
        """The slot of the last record that is synced."""
        self._synced_mono = 0.0

    @classmethod
    @contextlib.contextmanager
    def locked(cls, path: Path) -> Iterator[StateFile]:
        """Open or create the file and lock it. Raises ToolUsageError."""
        try:
            _make_folder(path.parent)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise errors.ToolUsageError(
                f"cannot write {error.filename}: {error.strerror}; use --state FILE"
            ) from error
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                text = f"this replay is running in another process, which has locked {path}"
                raise errors.ToolUsageError(text) from error
            yield cls(path, fd)
        finally:
            os.close(fd)

    def load(self) -> tuple[Replay, ReplayState] | None:
        """Read the file as the function `load`. Raises ToolUsageError."""
        data = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        recorded = _decode(self.path, data) if data else None
        if recorded is not None:
            self._begin = _slots_begin(data.index(b"\n") + 1)
            for slot, record in _slots(data, self._begin).items():
                if int(record["number"]) > self._number:
                    self._number, self._written = int(record["number"]), slot
            self.sync()  # a killed process may not have synced it
        return recorded

    def begin(self, replay: Replay) -> None:
        """Record a replay that has put nothing yet, and sync. Raises OutputError."""
        identity: dict[str, object] = {"version": VERSION, **asdict(replay)}
        length = len(json.dumps(identity)) + 64
        self._begin, self._number = _slots_begin(length), 0
        self._written = self._synced = 0
        with self._write_errors():
            # Discards another replay before the new first line exists.
            os.ftruncate(self._fd, 0)
            write_all(self._fd, b"\0" * self._begin + BLANK, 0)
            os.fsync(self._fd)
            _sync_folder(self.path.parent)
            write_all(self._fd, _line(identity, self._begin), 0)
            os.fsync(self._fd)

    def save(self, state: ReplayState) -> None:
        """Record the progress, which survives a kill. Raises OutputError."""
        self._number += 1
        record: dict[str, object] = {"number": self._number}
        record |= {each.name: getattr(state, each.name) for each in fields(state)}
        self._written = next(
            slot for slot in range(SLOTS) if slot not in (self._written, self._synced)
        )
        with self._write_errors():
            write_all(self._fd, _line(record, SLOT_BYTES), self._begin + self._written * SLOT_BYTES)
        now_mono = time.monotonic()
        if now_mono - self._synced_mono >= SYNC_S:
            self._synced_mono = now_mono
            self.sync()

    def sync(self) -> None:
        """Raises OutputError."""
        with self._write_errors():
            os.fdatasync(self._fd)
        self._synced = self._written

    def remove(self) -> None:
        """Raises OutputError."""
        with self._write_errors():
            self.path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _write_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise errors.OutputError(f"cannot write {self.path}: {error.strerror}") from error
