"""Print every entry of a folder as text, once or while a server continues to write.

csrc/binlog_files/entry_text.c formats the entries; this module formats damage and headings.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable

from beanstalkd_py.binlog import file_walk
from beanstalkd_py.binlog.damage_messages import other_version
from beanstalkd_py.binlog.file_walk import Damage, Sink, Walk
from beanstalkd_py.binlog.folders import Folder, Shard
from beanstalkd_py.core.binlog_reader import FileKind, ReadResult, Selection
from beanstalkd_py.regular_file import open_regular

POLL_S = 0.05
"""Interval of looking for new entries in the current file."""
RELIST_S = 1.0
"""Interval of listing a folder whose modification time did not change; that clock is coarse."""

_LOCATION_WIDTH = 24
_SHARD_LOCATION_WIDTH = 34
"""Width with a shard's folder; both are those of csrc/binlog_files/entry_text.c."""
_HEADINGS = (
    f"  {'kind':5}  {'id':>12}  {'state':8}  {'event (UTC)':24}  {'pri':>10}"
    f"  {'delay s':>10}  {'TTR s':>10}  {'body bytes':>10}  {'checksum':8}  tube\n"
)
"""Headings of the columns after the first, as in csrc/binlog_files/entry_text.c."""


def headings(folder: Folder) -> str:
    divided = any(shard.prefix for shard in folder.shards)
    return "file:offset".ljust(_SHARD_LOCATION_WIDTH if divided else _LOCATION_WIDTH) + _HEADINGS


def line_of(damage: Damage, as_json: bool) -> bytes:
    if as_json:
        return json.dumps(damage.to_json(), separators=(",", ":")).encode() + b"\n"
    width = _SHARD_LOCATION_WIDTH if "/" in damage.file else _LOCATION_WIDTH
    location = f"{damage.file}:{damage.offset}".ljust(width)
    return f"{location}  {damage.kind}: {damage.what}\n".encode()


def dump(folder: Folder, selection: Selection, sink: Sink) -> bool:
    """Print all entries. Return whether nothing was wrong. Raises OSError."""
    clean = True
    for damage in file_walk.damage_of_folder(folder):
        sink(line_of(damage, selection.as_json))
        clean = False
    for shard in folder.shards:
        with contextlib.closing(Walk(shard, selection)) as walk:
            for result in walk.read(sink):
                if isinstance(result, Damage):
                    sink(line_of(result, selection.as_json))
                    clean = clean and result.tail
    return clean


def follow(
    folder: Folder,
    selection: Selection,
    sink: Sink,
    wait: Callable[[float], object] = time.sleep,
) -> None:
    """Print all entries, and further ones until `wait` or `sink` raises. Raises OSError."""
    followers = [Follower(shard, selection, sink) for shard in folder.shards]
    try:
        while True:
            progressed = [follower.step() for follower in followers]
            if not any(progressed):
                wait(POLL_S)
    finally:
        for follower in followers:
            follower.close()


class Follower:
    """Follows one growing shard. It leaves a file when the next one has entries."""

    def __init__(self, shard: Shard, selection: Selection, sink: Sink) -> None:
        self._shard = shard
        self._as_json = selection.as_json
        self._sink = sink
        self._walk = Walk(shard, selection)
        self._reader = self._walk.reader
        self._number = 0
        self._tries = file_walk.Tries()
        self._changed_ns = 0
        self._relist_mono = 0.0
        self._later: list[int] = []
        self._fd = -1
        self._is_last_look = False

    def close(self) -> None:
        self._close_file()
        self._walk.close()

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def step(self) -> bool:
        """Read new entries; return False if there were none."""
        if self._fd < 0:
            return self._open_next()
        if any(os.pread(self._fd, file_walk.LONGEST_HEAD, self._reader.facts().offset)):
            self._is_last_look = False
            self._reader.refresh()
            return self._read()
        if self._next() is None:
            return False
        # The server may have appended before it began the next file, so look once more.
        if self._is_last_look:
            self._close_file()
        self._is_last_look = True
        return True

    def _open_next(self) -> bool:
        number = self._next()
        if number is None:
            return False
        label = self._shard.label(number)
        try:
            self._fd = open_regular(self._shard.path / f"binlog.{number}")
            kind = self._reader.open(number, label)
        except FileNotFoundError:
            self._close_file()
            return True  # just removed; another file is next
        if kind == FileKind.EMPTY:
            self._close_file()
            return False
        self._report_gap(number)
        self._number = number
        if kind == FileKind.VERSION:
            self._close_file()
            facts = self._reader.facts()
            self._report(Damage(label, 0, other_version(facts.version), facts.size))
            return True
        self._is_last_look = False
        return self._read()

    def _read(self) -> bool:
        while True:
            result = self._reader.run(file_walk.BUDGET_BYTES)
            if text := self._reader.text():
                self._sink(text)
            if result == ReadResult.END:
                return True
            if result == ReadResult.FAULT and not self._fault():
                return False

    def _fault(self) -> bool:
        """Return whether to continue; otherwise the entry may be completed by the next look."""
        facts = self._reader.facts()
        complete = facts.next < facts.size or self._next() is not None
        if not complete:
            return False
        if self._tries.left(facts.at):
            time.sleep(file_walk.RETRY_S)
            self._reader.refresh()
            return True
        self._report(file_walk.damage_of(self._shard.label(self._number), facts))
        self._reader.skip_fault()
        return True

    def _next(self) -> int | None:
        """Return the next file that has entries. The folder is listed only if it changed."""
        now_mono = time.monotonic()
        changed_ns = self._shard.path.stat().st_mtime_ns
        if changed_ns != self._changed_ns or now_mono > self._relist_mono:
            self._later = self._shard.numbers()
            self._changed_ns, self._relist_mono = changed_ns, now_mono + RELIST_S
        self._later = [number for number in self._later if number > self._number]
        return next((n for n in self._later if file_walk.has_entries(self._shard, n)), None)

    def _report_gap(self, number: int) -> None:
        """Report files that a busy server removed before they were read."""
        if self._number and number > self._number + 1:
            missed = f"binlog.{self._number + 1} to binlog.{number - 1}"
            what = f"{missed} were removed before they could be read"
            self._report(Damage(self._shard.label(number), 0, what, gone=True))

    def _report(self, damage: Damage) -> None:
        self._sink(line_of(damage, self._as_json))
