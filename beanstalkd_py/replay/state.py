"""How far a replay has come, in a file that is right after a kill at any moment.

The file is text: in its first line what the replay is, then two places for how far it has come.
They are written in turn, each with a checksum, so one of them always holds. Whoever has the file
has a lock on it. It must not know stores or servers.
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

VERSION = 1
SLOT = 4096
"""Bytes of one of the two places: `done_beyond` has at most 128 offsets."""
SYNC_S = 1.0
"""It is on disk at least so often: a kill loses nothing, a power cut this much."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay is. Two with the same `key` are the same one.

    `since`, `until` and `filters` are as the user gave them; `begin`..`end` (milliseconds) and
    `log_begin`..`log_end` (offsets) are what that was at the first start, with `total` messages.
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
        """What the user asked for."""
        return (self.store, self.topic, self.into, self.since, self.until, tuple(self.filters))


@dataclass(slots=True)
class Reached:
    """How far it has come: all messages before `offset` of the log, and those in `done_beyond`.

    The others are numbers of messages: `looked_at` are all of them, of which `put` were put.
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
        """Whether nothing is left to do."""
        return self.finished_at > 0

    @property
    def missing(self) -> int:
        """How many of those wanted could not be put."""
        return self.left_out + self.too_big + self.damaged + self.expired


def load(path: Path) -> tuple[Replay, Reached] | None:
    """What a file says. None: there is none, or its replay has not put anything yet.

    ToolUsageError: it is no such file, or cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.ToolUsageError(f"cannot read {path}: {error.strerror}") from error
    return _decode(path, data)


def _decode(path: Path, data: bytes) -> tuple[Replay, Reached] | None:
    line, is_whole, _ = data.partition(b"\n")
    # The first line is synced before anything is put.
    if not is_whole and len(data) % SLOT == 0 and not data.strip(b" \0"):
        return None
    said = _checked(line)
    if said is None or said.pop("version", None) != VERSION:
        text = f"{path} is no state of a replay; give another --state FILE, or remove it"
        raise errors.ToolUsageError(text)
    begin = _slots_begin(len(line) + 1)
    slots = [_checked(data[at : at + SLOT]) for at in (begin, begin + SLOT)]
    reached = Reached()
    for slot in sorted((slot for slot in slots if slot), key=lambda slot: slot["number"]):
        del slot["number"]
        reached = Reached(**slot)
    return Replay(**said), reached


def _slots_begin(head: int) -> int:
    return -(-head // SLOT) * SLOT


def _checked(data: bytes) -> dict[str, Any] | None:
    try:
        said = json.loads(data)
        crc = said.pop("crc")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return said if zlib.crc32(json.dumps(said).encode()) == crc else None


def _line(said: dict[str, object], size: int) -> bytes:
    text = json.dumps({**said, "crc": zlib.crc32(json.dumps(said).encode())})
    data = text.encode().ljust(size - 1) + b"\n"
    assert len(data) == size, "the place is large enough"
    return data


class StateFile:
    """The file while a replay is under way; `taken` makes one."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._begin = 0
        self._number = 0
        self._synced_mono = 0.0

    @classmethod
    @contextlib.contextmanager
    def taken(cls, path: Path) -> Iterator[StateFile]:
        """The file, made if need be, and nobody else's meanwhile. ToolUsageError."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise errors.ToolUsageError(
                f"cannot write {error.filename}: {error.strerror}; give --state FILE"
            ) from error
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                text = f"this replay is under way in another process, which has {path}"
                raise errors.ToolUsageError(text) from error
            yield cls(path, fd)
        finally:
            os.close(fd)

    def load(self) -> tuple[Replay, Reached] | None:
        """What it says, as the function above. ToolUsageError."""
        size = os.fstat(self._fd).st_size
        data = os.pread(self._fd, size, 0)
        found = _decode(self.path, data) if data else None
        if found is not None:
            self._begin = _slots_begin(data.index(b"\n") + 1)
            slots = [_checked(data[at : at + SLOT]) for at in (self._begin, self._begin + SLOT)]
            self._number = max((int(str(slot["number"])) for slot in slots if slot), default=0)
        return found

    def begin(self, replay: Replay) -> None:
        """A replay that has put nothing yet; on disk afterwards. OutputError."""
        said: dict[str, object] = {"version": VERSION, **asdict(replay)}
        length = len(json.dumps(said)) + 64
        self._begin, self._number = _slots_begin(length), 0
        with self._told():
            # Until the new first line is there, what the file says of another replay is gone.
            os.ftruncate(self._fd, 0)
            empty = (b" " * (SLOT - 1) + b"\n") * 2
            _write(self._fd, b"\0" * self._begin + empty, 0)
            os.fsync(self._fd)
            _write(self._fd, _line(said, self._begin), 0)
            os.fsync(self._fd)

    def note(self, reached: Reached) -> None:
        """How far it has come: known after a kill. OutputError."""
        self._number += 1
        said: dict[str, object] = {"number": self._number}
        said |= {each.name: getattr(reached, each.name) for each in fields(reached)}
        with self._told():
            _write(self._fd, _line(said, SLOT), self._begin + self._number % 2 * SLOT)
            now_mono = time.monotonic()
            if now_mono - self._synced_mono >= SYNC_S:
                self._synced_mono = now_mono
                os.fdatasync(self._fd)

    def sync(self) -> None:
        """All of it on disk. OutputError."""
        with self._told():
            os.fdatasync(self._fd)

    def remove(self) -> None:
        """Nothing was done that anybody would have to know. OutputError."""
        with self._told():
            self.path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise errors.OutputError(f"cannot write {self.path}: {error.strerror}") from error


def _write(fd: int, data: bytes, at: int) -> None:
    while data:
        written = os.pwrite(fd, data, at)
        data, at = data[written:], at + written
