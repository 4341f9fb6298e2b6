"""classes Reader and Rewrite: a whole binlog folder read, and its jobs written to new files.

Each method is one call of the C function of the same name in csrc/api/core.h, with types, and with
an
exception where C returns a negative number. It must not know what a caller makes of what it finds.
"""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass
from typing import Any

from beanstalkd_py.core._core import ffi, lib
from beanstalkd_py.core.errno_errors import raise_errno

STATES = ("deleted", "ready", "reserved", "buried", "delayed")
"""What an entry may say of its job, by number."""
TIME_MIN = -(2**63)
TIME_MAX = 2**63 - 1


class FileKind(enum.IntEnum):
    """What a file is when it is opened."""

    EMPTY = lib.BS_FILE_EMPTY
    ENTRIES = lib.BS_FILE_ENTRIES
    VERSION = lib.BS_FILE_VERSION  # none that can be read


class Found(enum.IntEnum):
    """Why Reader.run has come back."""

    END = lib.BS_READ_END
    MORE = lib.BS_READ_MORE
    FAULT = lib.BS_READ_FAULT


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The file being read; all sizes and offsets are bytes. `bs_read_facts` of core.h."""

    number: int
    version: int
    size: int
    offset: int
    end: int
    full_entries: int
    short_entries: int
    lengths: int
    at: int
    next: int
    torn: bool
    fault: str


@dataclass(frozen=True, slots=True)
class Length:
    """Where the entries of a file ended, bytes, as the later file `stated_in` says.

    `outdated`: they were not on disk then, and this is another boot of the machine.
    """

    number: int
    stated_in: int
    length: int
    outdated: bool


@dataclass(frozen=True, slots=True)
class Usage:
    """What of one file is live: jobs whose full entry is there, and bytes of live entries."""

    number: int
    jobs: int
    live_bytes: int


@dataclass(frozen=True, slots=True)
class Selection:
    """Which entries are printed, and how. Empty tuples mean all; times are wall nanoseconds."""

    as_json: bool = False
    ids: tuple[int, ...] = ()
    tubes: tuple[bytes, ...] = ()
    states: tuple[str, ...] = ()
    since: int = TIME_MIN
    until: int = TIME_MAX


@dataclass(frozen=True, slots=True)
class Written:
    """How far a Rewrite has got. `read` and `size` are bytes, of old files and of new ones."""

    read: int
    jobs: int
    size: int
    files: int


class Reader:
    """One folder. Methods raise OSError, or MemoryError."""

    def __init__(self, folder: str, width: int) -> None:
        """`width` is the bytes of a position, 5 to 8: see bs_reader_new."""
        made = ffi.new("bs_reader **")
        raise_errno(lib.bs_reader_new(os.fsencode(folder), width, made))
        self._reader = made[0]
        self._length = ffi.new("size_t *")

    def close(self) -> None:
        """Frees it; it is of no use afterwards."""
        if self._reader != ffi.NULL:
            lib.bs_reader_free(self._reader)
            self._reader = ffi.NULL

    def print(self, selection: Selection) -> None:
        """From now on entries become text."""
        wanted = ffi.new("bs_print *")
        ids = ffi.new("uint64_t[]", list(selection.ids))
        names = [ffi.new("char[]", name) for name in selection.tubes]
        tubes = ffi.new("char *[]", names)
        wanted.json = selection.as_json
        wanted.ids, wanted.id_count = ids, len(selection.ids)
        wanted.tubes, wanted.tube_count = tubes, len(names)
        for state in selection.states or STATES:
            wanted.states |= 1 << STATES.index(state)
        wanted.since, wanted.until = selection.since, selection.until
        raise_errno(lib.bs_reader_print(self._reader, wanted))

    def text(self) -> Any:
        """The text since the last `run`: a buffer that is good until the next, empty for none."""
        text = lib.bs_reader_text(self._reader, self._length)
        return ffi.buffer(text, self._length[0]) if self._length[0] else b""

    def open(self, number: int, label: str) -> FileKind:
        """Opens binlog.<number>, which text calls `label`."""
        return FileKind(raise_errno(lib.bs_reader_open(self._reader, number, os.fsencode(label))))

    def run(self, budget: int) -> Found:
        """Reads `budget` bytes or until there is much text. At a fault it stays."""
        return Found(raise_errno(lib.bs_reader_run(self._reader, budget)))

    def accept(self) -> None:
        """Goes on behind a fault."""
        raise_errno(lib.bs_reader_accept(self._reader))

    def refresh(self) -> None:
        """Looks at the open file anew, because somebody writes to it."""
        raise_errno(lib.bs_reader_refresh(self._reader))

    def forget(self) -> None:
        """The files read before have been removed, and with them the jobs that were only there."""
        raise_errno(lib.bs_reader_forget(self._reader))

    def facts(self) -> FileFacts:
        """What is known of the file that was opened last."""
        facts = lib.bs_reader_facts(self._reader)
        fault = "" if facts.fault == ffi.NULL else ffi.string(facts.fault).decode()
        return FileFacts(
            number=facts.number,
            version=facts.version,
            size=facts.bytes,
            offset=facts.offset,
            end=facts.end,
            full_entries=facts.full_entries,
            short_entries=facts.short_entries,
            lengths=facts.lengths,
            at=facts.at,
            next=facts.next,
            torn=bool(facts.torn),
            fault=fault,
        )

    @property
    def jobs(self) -> int:
        """How many live ones are known so far."""
        return int(lib.bs_reader_jobs(self._reader))

    @property
    def last_id(self) -> int:
        """The highest id that was ever given, as far as is known."""
        return int(lib.bs_reader_last_id(self._reader))

    def lengths(self) -> dict[int, Length]:
        """What the files so far say of earlier ones, the last word on each, by its number."""
        found: dict[int, Length] = {}
        length, index = ffi.new("bs_read_length *"), 0
        while lib.bs_reader_length(self._reader, index, length):
            number, outdated = length.number, bool(length.outdated)
            found[number] = Length(number, length.stated_in, length.length, outdated)
            index += 1
        return found

    def usage(self) -> list[Usage]:
        """What is live of each file with entries, in the order of reading."""
        raise_errno(lib.bs_reader_tally(self._reader))
        usages: list[Usage] = []
        usage = ffi.new("bs_file_usage *")
        while lib.bs_reader_usage(self._reader, len(usages), usage):
            usages.append(Usage(usage.number, usage.jobs, usage.live_bytes))
        return usages

    def rewrite(self, folder: str, first: int, suffix: str, file_size: int, wall: int) -> Rewrite:
        """Its jobs into new files of `folder`: see bs_rewrite_new. It must outlive the Rewrite."""
        made = ffi.new("bs_rewrite **")
        name, ending = os.fsencode(folder), suffix.encode()
        raise_errno(lib.bs_rewrite_new(self._reader, name, first, ending, file_size, wall, made))
        return Rewrite(made[0])


class Rewrite:
    """Writes new files, piece by piece. Methods raise OSError."""

    def __init__(self, rewrite: Any) -> None:
        """Takes over a `bs_rewrite *`."""
        self._rewrite = rewrite

    def run(self, budget: int) -> bool:
        """Reads on, `budget` bytes of the old files; False when all is written and synced."""
        return raise_errno(lib.bs_rewrite_run(self._rewrite, budget)) == 1

    def written(self) -> Written:
        """How far it has got."""
        said = lib.bs_rewrite_progress(self._rewrite)
        return Written(said.read, said.jobs, said.bytes, said.files)

    def close(self) -> None:
        """Frees it; it is of no use afterwards."""
        if self._rewrite != ffi.NULL:
            lib.bs_rewrite_free(self._rewrite)
            self._rewrite = ffi.NULL
