"""Typed wrapper of csrc/api/reader.h: a binlog folder read, and its jobs written to new files."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass
from typing import Any, NamedTuple

from beanstalkd_py.core._core import ffi, lib
from beanstalkd_py.core.c_values import fields_of, raise_errno

STATES = ("deleted", "ready", "reserved", "buried", "delayed")
"""The states of an entry, by number."""
TIME_MIN = -(2**63)
TIME_MAX = 2**63 - 1


class FileKind(enum.IntEnum):
    EMPTY = lib.BS_FILE_EMPTY
    ENTRIES = lib.BS_FILE_ENTRIES
    VERSION = lib.BS_FILE_VERSION  # not supported


class ReadResult(enum.IntEnum):
    """Why Reader.run has returned."""

    END = lib.BS_READ_END
    MORE = lib.BS_READ_MORE
    FAULT = lib.BS_READ_FAULT


class FileFacts(NamedTuple):
    """The current file: `bs_read_facts`. All sizes and offsets are bytes."""

    number: int
    version: int
    size: int
    offset: int
    end: int
    full_entries: int
    short_entries: int
    lengths: int
    attributes: int
    at: int
    next: int
    torn: bool
    fault: str


class Length(NamedTuple):
    """A length entry of file `stated_in`: the bytes of entries in file `number`.

    `outdated`: the entries were not synced then, and the system has been booted since.
    """

    number: int
    stated_in: int
    length: int
    outdated: bool


class Usage(NamedTuple):
    """The live jobs whose full entry is in a file, and the bytes of live entries there."""

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
    """The progress of a Rewrite. `read` and `size` are bytes, of old files and of new ones."""

    read: int
    jobs: int
    size: int
    files: int


class Reader:
    """Reads one folder: see the functions bs_reader_*. Methods raise OSError or MemoryError."""

    def __init__(self, folder: str, width: int) -> None:
        """`width` is the bytes of a position, 5 to 8: see bs_reader_new."""
        created = ffi.new("bs_reader **")
        raise_errno(lib.bs_reader_new(os.fsencode(folder), width, created))
        self._reader = ffi.gc(created[0], lib.bs_reader_free)
        self._length = ffi.new("size_t *")

    def close(self) -> None:
        ffi.release(self._reader)

    def print(self, selection: Selection) -> None:
        """Make `run` print the selected entries."""
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
        """Return the text of the last `run`, a buffer that is valid until the next."""
        text = lib.bs_reader_text(self._reader, self._length)
        return ffi.buffer(text, self._length[0]) if self._length[0] else b""

    def open(self, number: int, label: str) -> FileKind:
        """Open binlog.<number>, printed as `label`."""
        return FileKind(raise_errno(lib.bs_reader_open(self._reader, number, os.fsencode(label))))

    def run(self, budget: int) -> ReadResult:
        return ReadResult(raise_errno(lib.bs_reader_run(self._reader, budget)))

    def skip_fault(self) -> None:
        raise_errno(lib.bs_reader_skip_fault(self._reader))

    def refresh(self) -> None:
        raise_errno(lib.bs_reader_refresh(self._reader))

    def forget(self) -> None:
        lib.bs_reader_forget(self._reader)

    def facts(self) -> FileFacts:
        facts = lib.bs_reader_facts(self._reader)
        fault = "" if facts.fault == ffi.NULL else ffi.string(facts.fault).decode()
        return FileFacts._make([*fields_of(facts, FileFacts._fields[:-1]), fault])

    @property
    def jobs(self) -> int:
        return lib.bs_reader_jobs(self._reader)

    def lengths(self) -> dict[int, Length]:
        """Return the last length entry for each file, by its number."""
        lengths: dict[int, Length] = {}
        length, index = ffi.new("bs_read_length *"), 0
        while lib.bs_reader_length(self._reader, index, length):
            lengths[length.number] = Length(*fields_of(length, Length._fields))
            index += 1
        return lengths

    def usage(self) -> list[Usage]:
        """Return the usage of each file with entries, in the order of reading."""
        lib.bs_reader_tally(self._reader)
        usages: list[Usage] = []
        usage = ffi.new("bs_file_usage *")
        while lib.bs_reader_usage(self._reader, len(usages), usage):
            usages.append(Usage(*fields_of(usage, Usage._fields)))
        return usages

    def rewrite(self, folder: str, first: int, suffix: str, file_size: int, wall: int) -> Rewrite:
        """Write the jobs to new files of `folder`: see bs_rewrite_new.

        This reader must stay open longer than the Rewrite.
        """
        created = ffi.new("bs_rewrite **")
        name, ending = os.fsencode(folder), suffix.encode()
        raise_errno(lib.bs_rewrite_new(self._reader, name, first, ending, file_size, wall, created))
        return Rewrite(ffi.gc(created[0], lib.bs_rewrite_free))


class Rewrite:
    """Writes new files, piece by piece. Methods raise OSError."""

    def __init__(self, rewrite: Any) -> None:
        self._rewrite = rewrite

    def run(self, budget: int) -> bool:
        """Read `budget` bytes of the old files; return False when everything is synced."""
        return raise_errno(lib.bs_rewrite_run(self._rewrite, budget)) == 1

    def written(self) -> Written:
        progress = lib.bs_rewrite_progress(self._rewrite)
        return Written(progress.read, progress.jobs, progress.bytes, progress.files)

    def close(self) -> None:
        ffi.release(self._rewrite)
