"""Verify a store: compare log, queues and index with each other.

The log is dispatched again, and the result is compared with queues and index. Everything that the
file `dispatched` records must be on disk, even while a writer has the store open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beanstalkd_py.errors import StoreDamagedError
from beanstalkd_py.history._store import ffi, lib
from beanstalkd_py.history.files import consume_queue, layout, store_lock
from beanstalkd_py.history.files.checkpoint import Checkpoint, Dispatched
from beanstalkd_py.history.files.commit_log import FAULTS, LogWalk
from beanstalkd_py.history.files.compatibility import LIGHT_QUEUE, batch_topics, unreadable
from beanstalkd_py.history.files.consume_queue import (
    EVERYTHING,
    UNIT,
    UNIT_FIELDS,
    ConsumeQueue,
    Unit,
)
from beanstalkd_py.history.files.index import IndexFile
from beanstalkd_py.history.files.segments import Segments
from beanstalkd_py.history.queries.lookup import ReadableStore
from beanstalkd_py.history.reader import StoreReader
from beanstalkd_py.history.writing.dispatch import DispatchReader

__all__ = ["Fault", "Report", "verify"]

MOST_FAULTS = 1000
_LIGHT_TOPICS, _LIGHT_OFFSETS = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"
"""Properties of a message in light queues: their topics, and its queue offset in each."""
_NO_MESSAGE = "the entry is of no message of the log"
_INDEX_FAULTS = {
    lib.HS_INDEX_HEADER_WRONG: "the header does not fit the entries",
    lib.HS_INDEX_LINK_WRONG: "the entry does not lead to the one before it in its slot",
    lib.HS_INDEX_SLOT_WRONG: "the slot does not lead to its newest entry",
    lib.HS_INDEX_ENTRY_WRONG: "the entry has no hash",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at an `offset` (bytes) of a `file`."""

    file: str
    offset: int
    what: str

    @classmethod
    def at(cls, segments: Segments, position: int, what: str) -> Fault:
        """Return the fault at a position of a sequence of files."""
        start = segments.start_of(position)
        return cls(str(segments.path(start)), position - start, what)

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}: {self.what}"


@dataclass(slots=True)
class Report:
    """The result. `pending` counts messages at the end that are not dispatched yet.

    Pending messages of a closed store are faults. `stopped` is set after `MOST_FAULTS` faults.
    `unchecked` has a sentence for each part of the store that was not compared.
    """

    faults: list[Fault] = field(default_factory=list)
    stopped: bool = False
    unchecked: list[str] = field(default_factory=list)
    messages: int = 0
    log_bytes: int = 0
    units: int = 0
    entries: int = 0
    pending: int = 0

    @property
    def is_clean(self) -> bool:
        return not self.faults


class _TooManyFaults(Exception):
    """Ends the verification."""


def verify(store: ReadableStore, recorded_end: int = 0) -> Report:
    """Verify a whole store, which a writer may have open meanwhile.

    `recorded_end` is a log offset that was known to be on disk before the store was opened.
    """
    verification = _Verification(store, recorded_end)
    try:
        verification.run()
    except _TooManyFaults:
        verification.report.stopped = True
    return verification.report


class _Verification:
    def __init__(self, store: ReadableStore, recorded_end: int) -> None:
        self.report = Report(unchecked=unreadable(store.folder))
        self.store = store
        self._recorded = store.recorded.offset if store.recorded is not None else 0
        self.end = store.log.end
        self._recorded_end = max(self._recorded, recorded_end)
        self._missing: dict[tuple[str, int], tuple[str, int, int]] = {}
        self._batch_topics = set(batch_topics(store.folder))
        self._has_queues = len(store.queues) > 0 or not self.report.unchecked
        self._has_extensions = (store.folder / layout.QUEUE_EXTENSIONS).is_dir()
        self._reader = DispatchReader(store.log.segments)
        self._table = ffi.gc(lib.hs_queues_new(), lib.hs_queues_free)
        self._ends: dict[ConsumeQueue, int] = {}
        self._index = _IndexComparison(store, self)

    @property
    def is_open(self) -> bool:
        """Whether a writer has the store open, or ended without closing it."""
        return self.store.was_open or not store_lock.was_stopped_cleanly(self.store.folder)

    @property
    def settled(self) -> int:
        """The log offset before which every message must be in queues and index."""
        return self._recorded if self.is_open else EVERYTHING

    def add(self, fault: Fault) -> None:
        self.report.faults.append(fault)
        if len(self.report.faults) >= MOST_FAULTS:
            raise _TooManyFaults

    def add_in_log(self, offset: int, what: str) -> None:
        self.add(Fault.at(self.store.log.segments, offset, what))

    def run(self) -> None:
        store = self.store
        for segments in (store.log.segments, *(queue.segments for queue in store.queues)):
            try:
                segments.check(repair=False)
            except StoreDamagedError as error:
                self.add(Fault(str(segments.folder), 0, str(error)))
        for path, what in store.index.unreadable.items():
            self.add(Fault(str(path), 0, what))
        if self.end < self._recorded_end:
            missing = self._recorded_end - self.end
            self.add_in_log(
                self.end,
                f"the log ends here, but {missing} more bytes are recorded as having been on disk",
            )
        for begin, end in self._sound_ranges():
            self._compare(begin, end)
        for file, offset, count in self._missing.values():
            self.add(Fault(str(file), offset, f"{count} units are missing"))
        for queue in store.queues:
            if queue.topic.startswith(LIGHT_QUEUE):
                self._check_light(queue)
            else:
                self._check_end(queue)
        self._index.finish()
        self.report.log_bytes = self.end - store.log.begin

    def _sound_ranges(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of sound records. After a damaged record, continue with the next file."""
        log = self.store.log
        checks = lib.HS_CHECK_BODY | lib.HS_CHECK_PROPERTY_CRC
        if log.has_property_crc and Dispatched.load(self.store.folder / layout.DISPATCHED):
            checks |= lib.HS_CHECK_HAS_CRC  # a recovery would end the log there
        begin = log.begin
        while begin < self.end:
            walk = LogWalk(log, begin, checks)
            while walk.offset < self.end and walk.advance():
                pass
            yield begin, min(walk.offset, self.end)
            if walk.offset >= self.end:
                break
            self.add_in_log(walk.offset, FAULTS[walk.stop_reason])
            begin = log.segments.start_of(walk.offset) + log.segments.size
        if self.is_open or (isinstance(self.store, StoreReader) and self.store.has_foreign_tail()):
            return
        if (at := log.segments.first_data(self.end)) is not None:
            self.add_in_log(at, "something is left behind the end of the log")

    def _compare(self, begin: int, end: int) -> None:
        """Compare queues and index with a range of sound records."""
        at, found = begin, self._reader.found
        while at < end:
            next_at = self._reader.read(self._table, at, end)
            self.report.messages += found.count
            if found.duplicates:
                what = f"from here on queue offsets that are taken; messages: {found.duplicates}"
                self.add_in_log(at, what)
            for number in range(found.run_count):
                self._compare_run(found.runs[number])
            self._index.compare(found.keys, found.key_count)
            at = next_at
            if found.why == lib.HS_DISPATCH_GAP:
                self._skip_gap(at)

    def _skip_gap(self, at: int) -> None:
        message = self.store.log.message(at)
        if message is None:
            return
        if message.topic not in self._batch_topics:  # a batch message counts as several
            queue = f"{message.topic}/{message.queue_id}"
            self.add_in_log(at, f"queue offset {message.queue_offset} of {queue} is not next")
        consume_queue.set_next(self._table, message.topic, message.queue_id, message.queue_offset)

    def _compare_run(self, run: Any) -> None:
        topic, queue_id = name = consume_queue.queue_name(self._table, run.queue)
        if topic in self._batch_topics or not self._has_queues:
            return
        expected = bytes(ffi.buffer(run.units, run.count * UNIT))
        queue = self.store.queues.get(topic, queue_id)
        if queue is None:
            folder = self.store.queues.root / topic / str(queue_id)
            self._count_missing(name, expected, folder, 0)
            return
        before = min(max(queue.first - run.first, 0), run.count)
        if before:
            what = f"{before} units before the first file are missing"
            self.add(Fault(str(queue.segments.folder), 0, what))
        present = max(min(run.count, queue.end - run.first), 0)
        self._ends[queue] = run.first + run.count
        self.report.units += present
        if present < run.count:
            at = (run.first + present) * UNIT
            start = queue.segments.start_of(at)
            missing = expected[present * UNIT :]
            self._count_missing(name, missing, queue.segments.path(start), at - start)
        first = run.first + before
        actual = queue.read_bytes(first, present - before)
        expected = expected[before * UNIT :]
        if actual != expected[: len(actual)]:
            self._report_units(queue, first, expected, actual)

    def _count_missing(self, queue: tuple[str, int], units: bytes, file: Path, offset: int) -> None:
        """Count missing units; those of the newest messages may be pending."""
        settled = self.settled
        missing = sum(1 for at, *_ in UNIT_FIELDS.iter_unpack(units) if at < settled)
        self.report.pending += len(units) // UNIT - missing
        if missing:
            first_file, first, count = self._missing.get(queue, (str(file), offset, 0))
            self._missing[queue] = (first_file, first, count + missing)

    def _report_units(
        self, queue: ConsumeQueue, first: int, expected: bytes, actual: bytes
    ) -> None:
        for at in range(0, len(actual), UNIT):
            unit, by_log = (Unit(*UNIT_FIELDS.unpack_from(data, at)) for data in (actual, expected))
            is_same = (unit.offset, unit.size) == (by_log.offset, by_log.size)
            if unit == by_log or (is_same and self._has_extensions and not unit.has_tag_code):
                continue
            self.add(Fault.at(queue.segments, first * UNIT + at, f"{unit}; by the log {by_log}"))

    def _check_light(self, queue: ConsumeQueue) -> None:
        """Check units against the properties of their messages."""
        for number, unit in queue.units(queue.find_from(self.store.log.begin), queue.end):
            if unit.offset >= self.end:
                continue
            self.report.units += 1
            message = self.store.message(unit.offset)
            properties = message.properties if message is not None else {}
            names = properties.get(_LIGHT_TOPICS, "").split(",")
            offsets = properties.get(_LIGHT_OFFSETS, "").split(",")
            if (queue.topic, str(number)) not in zip(names, offsets, strict=False):
                self._report_foreign_unit(queue, number, unit)

    def _check_end(self, queue: ConsumeQueue) -> None:
        """Check the units behind the last message of the log."""
        first = queue.find_end(self.end)
        units = queue.find_end(self.settled) - first
        if units > 0:
            what = f"{units} units from here on lead behind the end of the log"
            self.add(Fault.at(queue.segments, first * UNIT, what))
        begin = self._ends.get(queue, queue.find_from(self.store.log.begin))
        for number, unit in queue.units(begin, queue.end):
            if unit.offset < self.end:
                self._report_foreign_unit(queue, number, unit)

    def _report_foreign_unit(self, queue: ConsumeQueue, number: int, unit: Unit) -> None:
        what = f"leads to offset {unit.offset}, where no message of the queue begins"
        self.add(Fault.at(queue.segments, number * UNIT, what))


def _keeps_index(store: ReadableStore) -> bool:
    """Return whether the store ever had an index (messageIndexEnable=true)."""
    if store.index.files or store.index.unreadable or store.recorded is not None:
        return True
    return Checkpoint.load(store.folder / layout.CHECKPOINT).index_timestamp > 0


class _IndexComparison:
    """Compares the entries of all index files with the keys of the log, both in order.

    RocketMQ's recovery repeats the entries of a message; that is no fault.
    """

    def __init__(self, store: ReadableStore, verification: _Verification) -> None:
        self._files = list(store.index.files)
        self._log = store.log
        self._verification = verification
        self._number = 0
        self._last_compared = -1  # offset of a message
        self._cursor = ffi.new("hs_index_comparison *", {"entry": 1})
        self._missing = (0, 0)  # offset of the first message, and number of keys
        self._is_kept = _keeps_index(store)
        if not self._is_kept:
            what = f"{store.folder} has no index (as RocketMQ with messageIndexEnable=false)"
            verification.report.unchecked.append(what)
        while (file := self._file()) is not None and self._next_offset(file) < self._log.begin:
            self._cursor.entry += 1  # its message has expired

    def _report(self, file: IndexFile, at: int, what: str) -> None:
        self._verification.add(Fault(str(file.path), at, what))

    def _file(self) -> IndexFile | None:
        """Return the file of the next entry."""
        while self._number < len(self._files):
            file = self._files[self._number]
            if self._cursor.entry < min(file.header.next_entry, file.entries):
                return file
            self._cursor.previous_end = file.header.end_timestamp
            self._cursor.entry = 1
            self._number += 1
        return None

    def _next_offset(self, file: IndexFile) -> int:
        """Return the log offset of the next entry."""
        return _offset_at(file, _entry_at(file, self._cursor.entry))

    def compare(self, keys: Any, count: int) -> None:
        done = 0
        while done < count:
            file = self._file()
            if file is None:
                self._count_missing(keys, done, count)
                return
            before = self._cursor.entry
            result = lib.hs_index_compare(
                file.memory, file.slots, file.entries, keys + done, count - done, self._cursor
            )
            self._verification.report.entries += self._cursor.entry - before
            done += self._cursor.key
            if self._cursor.key:
                self._last_compared = keys[done - 1].offset
            if result != lib.HS_INDEX_SOUND:
                done += self._report_difference(file, keys[done])

    def _report_difference(self, file: IndexFile, key: Any) -> int:
        """Report a difference; return how many keys it accounts for."""
        offset = self._next_offset(file)
        if offset > key.offset:
            what = f"the message at {key.offset} of the log has no entry here"
            self._report(file, self._cursor.at, what)
            return 1
        self._cursor.entry += 1
        if offset == key.offset:
            what = f"hash or time are not those of the message at {offset}"
            self._report(file, self._cursor.at, what)
            return 1
        if offset != self._last_compared:
            self._report(file, self._cursor.at, _NO_MESSAGE)
        return 0

    def _count_missing(self, keys: Any, done: int, count: int) -> None:
        """Count missing keys; those of the newest messages may be pending."""
        settled = self._verification.settled
        missing = sum(1 for number in range(done, count) if keys[number].offset < settled)
        if missing and self._is_kept:
            first, before = self._missing
            self._missing = (first if before else keys[done].offset, before + missing)

    def finish(self) -> None:
        """Report entries without messages, and check each file by itself."""
        first, missing = self._missing
        if missing:
            what = f"{missing} keys from this message on are not in the index"
            self._verification.add_in_log(first, what)
        end, settled = self._verification.end, self._verification.settled
        beyond: dict[IndexFile, tuple[int, int]] = {}
        while (file := self._file()) is not None:
            offset = self._next_offset(file)
            at = _entry_at(file, self._cursor.entry)
            if end <= offset < settled:
                first_at, count = beyond.get(file, (at, 0))
                beyond[file] = (first_at, count + 1)
            elif offset < end and offset != self._last_compared:
                self._report(file, at, _NO_MESSAGE)
            self._cursor.entry += 1
        for file, (at, count) in beyond.items():
            what = f"{count} entries from here on are of messages behind the end of the log"
            self._report(file, at, what)
        fault_at = ffi.new("int64_t *")
        for file in self._files:
            self._check_header(file)
            result = lib.hs_index_check(file.memory, file.slots, file.entries, fault_at)
            if result < 0:
                raise MemoryError
            if result != lib.HS_INDEX_SOUND:
                self._report(file, fault_at[0], _INDEX_FAULTS[result])

    def _check_header(self, file: IndexFile) -> None:
        """Compare the header with the first and last entry and their messages."""
        header, log = file.header, self._log
        if not 1 < header.next_entry <= file.entries:
            return
        for number, at, name in ((1, 0, "begin"), (header.next_entry - 1, 8, "end")):
            offset = _offset_at(file, _entry_at(file, number))
            if getattr(header, f"{name}_offset") != offset:
                self._report(
                    file, 16 + at, f"the {name} is not at {offset}, as that of its entries"
                )
            stored = log.store_timestamp(offset) if log.begin <= offset < log.end else None
            if stored is not None and getattr(header, f"{name}_timestamp") != stored:
                self._report(file, at, f"the {name} is not at {stored} ms, as that of its messages")


def _entry_at(file: IndexFile, entry: int) -> int:
    """Return the position of an entry in its file."""
    return int(lib.HS_INDEX_HEADER + file.slots * 4 + entry * lib.HS_INDEX_ENTRY)


def _offset_at(file: IndexFile, at: int) -> int:
    """Return the log offset of the entry at a position of an index file."""
    return int.from_bytes(ffi.buffer(file.memory + at + 4, 8), "big", signed=True)
