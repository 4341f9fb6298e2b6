"""The files beside the binlog that a replicated queue keeps, as keys of its bucket.

They are the online policies and the progress of schedules. A key has the content of its file, none
if there is no file, and the epoch of the primary that wrote it.

F1  A new primary reads each key and writes it again, also one without a content. Only what it has
    read just before that write counts. So a write of an earlier primary either is in what it has
    read, or fails, however late it arrives. A server never writes over a higher epoch.
F2  While the queue is incomplete (N2), the folder of its first server counts and not the keys, so
    that a file which the server cannot read can be corrected.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from beanstalkd_py import symlinks
from beanstalkd_py.binlog.layout import POLICIES, SCHEDULES
from beanstalkd_py.history.files.layout import write_file
from beanstalkd_py.regular_file import read_regular
from beanstalkd_py.replication.lease import Keys, Lease
from beanstalkd_py.replication.log import LogUnavailableError, Record, WrongSequenceError
from beanstalkd_py.replication.stream_writer import FencedError

NAMES = (POLICIES, SCHEDULES)

Result = TypeVar("Result")


class UntilAvailable(Protocol):
    async def __call__(self, call: Callable[[], Awaitable[Result]], /) -> Result: ...


@dataclass(frozen=True, slots=True)
class Content:
    """The value of a key. `text` is None without a file."""

    epoch: int = 0
    text: str | None = None


class QueueFiles:
    """The files of one server, in its binlog folder `top`.

    `until_available` repeats a call until the log answers.
    """

    def __init__(self, log: Keys, lease: Lease, top: Path, until_available: UntilAvailable) -> None:
        self._log = log
        self._lease = lease
        self._top = top
        self._until_available = until_available
        self._revisions: dict[str, int] = {}

    async def copy(self) -> None:
        """Write what the primary has stored to the folder of a standby.

        So the folder has no files of an earlier time if it is all that is left. Raises
        LogUnavailableError, OSError.
        """
        for name in NAMES:
            record = await self._log.get(name)
            if record is not None and record.revision != self._revisions.get(name):
                self._write(name, record.decode(Content).text)
                self._revisions[name] = record.revision

    async def take_over(self, *, is_origin: bool) -> None:
        """Fence the keys and make the files equal to them (F1); the reverse if `is_origin` (F2).

        Raises FencedError if another server was faster, OSError.
        """
        for name in NAMES:
            record = await self._read_record(name)
            while True:
                found = Content() if record is None else self._checked(name, record)
                text = self._read(name) if is_origin else found.text
                self._revisions[name] = 0 if record is None else record.revision
                record = await self._put(name, text)
                if record is None:
                    break
            if not is_origin:
                self._write(name, text)

    async def store(self, name: str) -> None:
        """Store a file of the folder. Raises FencedError if another server is the primary."""
        text = self._read(name)
        while (record := await self._put(name, text)) is not None:
            # An earlier attempt of this server, whose outcome is unknown.
            self._revisions[name] = record.revision

    async def _put(self, name: str, text: str | None) -> Record | None:
        """Write a key that has the known revision; return None, or what another write has left.

        Raises FencedError if that is a later primary's.
        """
        content = Content(self._lease.epoch, text)
        put = partial(self._log.put, name, asdict(content), self._revisions[name])
        try:
            self._revisions[name] = await self._until_available(put)
        except WrongSequenceError:
            pass
        else:
            return None
        record = await self._until_available(partial(self._existing, name))
        if self._checked(name, record) != content:
            return record
        self._revisions[name] = record.revision
        return None

    def _checked(self, name: str, record: Record) -> Content:
        """Raises FencedError if a later primary has written the key."""
        found = record.decode(Content)
        if found.epoch > self._lease.epoch:
            raise FencedError(f"a server of epoch {found.epoch} has stored {name}")
        return found

    async def _existing(self, name: str) -> Record:
        record = await self._log.get(name)
        if record is None:
            raise LogUnavailableError(f"NATS lacks the key {name}, which was written before")
        return record

    async def _read_record(self, name: str) -> Record | None:
        return await self._until_available(partial(self._log.get, name))

    def _read(self, name: str) -> str | None:
        try:
            return read_regular(self._top / name).decode(errors="surrogateescape")
        except FileNotFoundError:
            return None

    def _write(self, name: str, text: str | None) -> None:
        if text is None:
            symlinks.remove(self._top / name, missing_ok=True)
        elif text != self._read(name):
            write_file(self._top / name, text.encode(errors="surrogateescape"))
