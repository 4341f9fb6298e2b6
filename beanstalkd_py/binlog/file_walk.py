"""Read the files of one shard one after another: their text, facts and damage.

csrc/binlog_files/scan.h decides what is damaged, as in recovery. If a server is writing to the
folder, a fault is read again before it is reported, and the last entry of the last file may be
incomplete.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

from beanstalkd_py.binlog import damage_messages as messages
from beanstalkd_py.binlog.folders import Folder, Shard
from beanstalkd_py.core.binlog_reader import FileFacts, FileKind, Reader, ReadResult, Selection
from beanstalkd_py.regular_file import open_regular

BUDGET_BYTES = 1 << 26
"""Bytes read between two checks for signals and progress updates."""
NOWHERE = "it is a symbolic link that leads nowhere"
RETRIES = 3
RETRY_S = 0.02
HEADER_BYTES = 4
LONGEST_HEAD = 288
"""Upper bound of an entry's bytes without its body: so many zeros mean that no entry follows."""

Sink = Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage at an offset of a file: `size` bytes are skipped.

    `torn`: the rest of an unacknowledged last entry, or of an unsynced file, after a crash. `tail`:
    a running server is writing the entry. `gone`: files were removed before they were read.
    """

    file: str
    offset: int
    what: str
    size: int = 0
    torn: bool = False
    tail: bool = False
    gone: bool = False

    @property
    def kind(self) -> str:
        """The kind of line in a dump."""
        return "tail" if self.tail else "gone" if self.gone else "damage"

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}: {self.what}"

    def to_json(self) -> dict[str, object]:
        return {
            "file": self.file,
            "offset": self.offset,
            "bytes": self.size,
            "kind": self.kind,
            "what": self.what,
        }


@dataclass(frozen=True, slots=True)
class FileRead:
    """A file that was read to its end; `facts` is None if nothing was written to it."""

    file: str
    number: int
    size: int
    facts: FileFacts | None


class Walk:
    """Reads one shard. `close` frees the memory of its jobs."""

    def __init__(self, shard: Shard, selection: Selection | None = None) -> None:
        """Raises OSError."""
        self.shard = shard
        self._ends: dict[int, int] = {}
        # Bytes of a position: enough for twice the folder's size, because it may grow meanwhile.
        width = max(5, (2 * shard.size()).bit_length() // 8 + 1)
        self.reader = Reader(str(shard.path), width)
        if selection is not None:
            self.reader.print(selection)

    def close(self) -> None:
        self.reader.close()

    def __iter__(self) -> Iterator[Damage | FileRead]:
        return self.read(lambda _text: None)

    def read(self, sink: Sink) -> Iterator[Damage | FileRead]:
        """Read all files, oldest first; text goes to `sink`. Raises OSError."""
        previous = 0
        self._ends.clear()
        for number in self.shard.numbers():
            label = self.shard.label(number)
            try:
                kind = self.reader.open(number, label)
            except FileNotFoundError:
                if not os.path.lexists(self.shard.path / f"binlog.{number}"):
                    # The server has removed it and all older ones, so forget their jobs.
                    self.reader.forget()
                    previous = 0
                    continue
                yield Damage(label, 0, messages.unreadable_file(NOWHERE))
            except OSError as error:
                yield Damage(label, 0, messages.unreadable_file(str(error.strerror)))
            else:
                yield from self._file(number, kind, sink)
                if previous and number != previous + 1 and not self._is_gap_recorded(number):
                    what = f"it follows binlog.{previous}: files between them are missing"
                    yield Damage(label, 0, what)
            previous = number
        yield from self._cut_files()

    def _is_gap_recorded(self, number: int) -> bool:
        """Return whether this file records that the one before its number never existed."""
        before = self.reader.lengths().get(number - 1)
        return before is not None and before.length == HEADER_BYTES

    def _cut_files(self) -> Iterator[Damage]:
        """Report files whose entries end before their recorded length."""
        for number, length in sorted(self.reader.lengths().items()):
            end = self._ends.get(number, length.length)
            if end >= length.length:
                continue
            if self.shard.live and has_entries(self.shard, number, end, if_gone=True):
                continue  # a server has removed the file, or written to it meanwhile
            describe = messages.unsynced_file if length.outdated else messages.cut_file
            what = describe(length.length, length.stated_in)
            lost = length.length - end
            yield Damage(self.shard.label(number), end, what, lost, torn=length.outdated)

    def _file(self, number: int, kind: FileKind, sink: Sink) -> Iterator[Damage | FileRead]:
        label = self.shard.label(number)
        facts = self.reader.facts()
        if kind == FileKind.EMPTY:
            self._ends[number] = HEADER_BYTES
            yield FileRead(label, number, facts.size, None)
            return
        if kind == FileKind.VERSION:
            yield Damage(label, 0, messages.other_version(facts.version), facts.size)
            return
        is_end_lost = yield from self.entries(label, sink)
        facts = self.reader.facts()
        if not is_end_lost:
            self._ends[number] = facts.end
        yield FileRead(label, number, facts.size, facts)

    def entries(self, label: str, sink: Sink) -> Generator[Damage, None, bool]:
        """Read the open file; return whether its end was unreadable and reported.

        Raises OSError.
        """
        tries, is_end_lost = Tries(), False
        while True:
            result = self.reader.run(BUDGET_BYTES)
            if text := self.reader.text():
                sink(text)
            if result == ReadResult.END:
                return is_end_lost
            if result == ReadResult.MORE:
                continue
            facts = self.reader.facts()
            if self.shard.live and tries.left(facts.at):
                time.sleep(RETRY_S)
                self.reader.refresh()
                continue
            if self.shard.live and facts.torn and self._is_last(facts.number):
                what = "the server is writing here: the last entry is not complete yet"
                yield Damage(label, facts.at, what, facts.size - facts.at, tail=True)
                return True
            yield damage_of(label, facts)
            is_end_lost = facts.next >= facts.size and not facts.torn
            self.reader.skip_fault()

    def _is_last(self, number: int) -> bool:
        """Return whether no later file has entries."""
        return not any(n > number and has_entries(self.shard, n) for n in self.shard.numbers())


class Tries:
    """Counts the retries at one offset."""

    def __init__(self) -> None:
        self._at = -1
        self._count = 0

    def left(self, offset: int) -> bool:
        """Return whether to try again."""
        if offset != self._at:
            self._at, self._count = offset, 0
        self._count += 1
        return self._count <= RETRIES


def damage_of(label: str, facts: FileFacts) -> Damage:
    """Describe a fault as the server's log does."""
    skipped = facts.next - facts.at
    if facts.torn:
        return Damage(label, facts.at, messages.TORN, skipped, torn=True)
    what = messages.unreadable_entry(facts.fault, facts.next, facts.size)
    return Damage(label, facts.at, what, skipped)


def damage_of_folder(folder: Folder) -> list[Damage]:
    """Return the damage that shows before any file is read."""
    lacks = [Damage(name, 0, "the shard is missing") for name in folder.missing]
    beside = "it lies beside shards: another server wrote it, and no server starts here"
    return lacks + [Damage(name, 0, beside) for name in folder.foreign_files]


def has_entries(
    shard: Shard, number: int, behind: int = HEADER_BYTES, *, if_gone: bool = False
) -> bool:
    """Return whether the file has data at this offset; `if_gone` if it was removed."""
    try:
        fd = open_regular(shard.path / f"binlog.{number}")
    except FileNotFoundError:
        return if_gone
    except OSError:
        return False
    try:
        return any(os.pread(fd, LONGEST_HEAD, behind))
    finally:
        os.close(fd)
