"""Every entry of a folder as text, once or as a server goes on writing.

Entries become text in the core (csrc/binlog_files/entry_text.c); here only the rare lines are
made. Where text goes is not known here.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable

from beanstalkd_py.binlog.file_walk import (
    BUDGET_BYTES,
    LONGEST_HEAD,
    RETRY_S,
    Damage,
    Sink,
    Tries,
    Walk,
    damage_of,
    damage_of_folder,
    has_entries,
)
from beanstalkd_py.binlog.folders import Folder, Shard
from beanstalkd_py.binlog.regular_file import open_regular
from beanstalkd_py.core.binlog_reader import FileKind, Found, Selection

POLL_S = 0.05
"""Between two looks at a file that a server may have written to."""
RELIST_S = 1.0
"""So often a folder is listed anyway: the clock that tells that it has changed is coarse."""

_LOCATION_WIDTH = 24
_SHARD_LOCATION_WIDTH = 34
"""With the shard's folder before the file's name; both as in csrc/binlog_files/entry_text.c."""
_HEADINGS = (
    f"  {'kind':5}  {'id':>12}  {'state':8}  {'event (UTC)':24}  {'pri':>10}"
    f"  {'delay s':>10}  {'TTR s':>10}  {'body bytes':>10}  {'checksum':8}  tube\n"
)
"""Above the columns of csrc/binlog_files/entry_text.c, after the first."""


def headings(folder: Folder) -> str:
    """The line above the entries of a folder."""
    divided = any(shard.prefix for shard in folder.shards)
    return "file:offset".ljust(_SHARD_LOCATION_WIDTH if divided else _LOCATION_WIDTH) + _HEADINGS


def line_of(damage: Damage, as_json: bool) -> bytes:
    """A place that is no entry, between the entries."""
    if as_json:
        return json.dumps(damage.to_json(), separators=(",", ":")).encode() + b"\n"
    width = _SHARD_LOCATION_WIDTH if "/" in damage.file else _LOCATION_WIDTH
    location = f"{damage.file}:{damage.offset}".ljust(width)
    return f"{location}  {damage.kind}: {damage.what}\n".encode()


def dump(folder: Folder, selection: Selection, sink: Sink) -> bool:
    """All entries there are; whether nothing was wrong. Raises OSError."""
    clean = True
    for damage in damage_of_folder(folder):
        sink(line_of(damage, selection.as_json))
        clean = False
    for shard in folder.shards:
        walk = Walk(shard, selection)
        try:
            for found in walk.read(sink):
                if isinstance(found, Damage):
                    sink(line_of(found, selection.as_json))
                    clean = clean and found.tail
        finally:
            walk.close()
    return clean


def follow(
    folder: Folder,
    selection: Selection,
    sink: Sink,
    wait: Callable[[float], object] = time.sleep,
) -> None:
    """All entries there are and will be, until `wait` or `sink` raises. Raises OSError."""
    followers = [Follower(shard, selection, sink) for shard in folder.shards]
    try:
        while True:
            moved = [follower.step() for follower in followers]
            if not any(moved):
                wait(POLL_S)
    finally:
        for follower in followers:
            follower.close()


class Follower:
    """One shard as it grows. A file is left for the next one as soon as that has entries."""

    def __init__(self, shard: Shard, selection: Selection, sink: Sink) -> None:
        self._shard = shard
        self._as_json = selection.as_json
        self._sink = sink
        self._walk = Walk(shard, selection)
        self._reader = self._walk.reader
        self._number = 0
        self._fd = -1
        self._tries = Tries()
        self._last_look = False
        self._changed_ns = 0
        self._relist_mono = 0.0
        self._later: list[int] = []

    def close(self) -> None:
        """Gives up what it has open."""
        self._walk.close()
        self._close_file()

    def step(self) -> bool:
        """Reads what is new; False if there was nothing."""
        if self._fd < 0:
            return self._open_next()
        if not self._is_written_to():
            return self._leave()
        self._last_look = False
        self._reader.refresh()
        return self._read()

    def _open_next(self) -> bool:
        number = self._next()
        if number is None:
            return False
        label = self._shard.label(number)
        try:
            fd = open_regular(self._shard.path / f"binlog.{number}", os.O_RDONLY)
        except FileNotFoundError:
            return True  # just removed; what comes next is another one
        kind = FileKind.EMPTY
        with contextlib.suppress(FileNotFoundError):
            kind = self._reader.open(number, label)
        if kind == FileKind.EMPTY:
            os.close(fd)
            return False
        self._tell_gap(number)
        self._number, self._fd, self._last_look = number, fd, False
        if kind == FileKind.VERSION:
            what = f"unreadable file: its version is {self._reader.facts().version}, not 7 or 5"
            self._say(Damage(label, 0, what, self._reader.facts().size))
            self._close_file()
            return True
        return self._read()

    def _is_written_to(self) -> bool:
        """A cheap look at where the next entry will be."""
        return any(os.pread(self._fd, LONGEST_HEAD, self._reader.facts().offset))

    def _leave(self) -> bool:
        """Goes on to the next file, after one more look: this one may have got its last entries."""
        if self._next() is None:
            return False
        if not self._last_look:
            self._last_look = True
            return True
        self._close_file()
        return True

    def _read(self) -> bool:
        """Until nothing more is there."""
        while True:
            found = self._reader.run(BUDGET_BYTES)
            if text := self._reader.text():
                self._sink(text)
            if found == Found.END:
                return True
            if found == Found.FAULT and not self._fault():
                return False

    def _fault(self) -> bool:
        """Is it to be gone over? Else there may be more of the entry at the next look."""
        facts = self._reader.facts()
        complete = facts.next < facts.size or self._next() is not None
        if not complete:
            return False
        if self._tries.left(facts.at):
            time.sleep(RETRY_S)
            self._reader.refresh()
            return True
        self._say(damage_of(self._shard.label(self._number), facts))
        self._reader.accept()
        return True

    def _next(self) -> int | None:
        """The next file that has entries. The folder is listed only if it has changed."""
        now_mono = time.monotonic()
        changed_ns = self._shard.path.stat().st_mtime_ns
        if changed_ns != self._changed_ns or now_mono > self._relist_mono:
            self._later = self._shard.numbers()
            self._changed_ns, self._relist_mono = changed_ns, now_mono + RELIST_S
        self._later = [number for number in self._later if number > self._number]
        return next((n for n in self._later if has_entries(self._shard, n)), None)

    def _tell_gap(self, number: int) -> None:
        """A busy server removes files faster than they are read."""
        if self._number and number > self._number + 1:
            missed = f"binlog.{self._number + 1} to binlog.{number - 1}"
            what = f"{missed} were removed before they could be read"
            self._say(Damage(self._shard.label(number), 0, what, gone=True))

    def _say(self, damage: Damage) -> None:
        self._sink(line_of(damage, self._as_json))

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
