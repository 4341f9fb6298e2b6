"""Recovery: find the end of the log and bring queues and index to it.

Queues and index are derived from the log. Recovery rewinds them to the offset up to which they are
on disk, and dispatches the messages behind it again. If that offset is unknown, or something before
it is missing, recovery rebuilds them from the first message on.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from beanstalkd_py import symlinks
from beanstalkd_py.errors import StoreDamagedError
from beanstalkd_py.history._store import lib
from beanstalkd_py.history.files import layout
from beanstalkd_py.history.files.checkpoint import Dispatched
from beanstalkd_py.history.files.commit_log import FAULTS, CommitLog, LogWalk
from beanstalkd_py.history.files.consume_queue import ConsumeQueue, ConsumeQueues
from beanstalkd_py.history.files.segments import Segments
from beanstalkd_py.history.queries.lookup import ReadableStore
from beanstalkd_py.history.writing.dispatch import Dispatcher, GapError

TAIL_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result of a recovery. `log_end` is the end of the log, bytes.

    `fault` describes the record there, or is "". `tail_file` is the file with the bytes behind the
    end, None if there were none. Queues and index were dispatched again from `dispatched_from`;
    `rebuilt` is set if that is the first message. `missing_bytes` of the log were on disk once, as
    the file `dispatched` records. `remade` describes the queues or index files that were missing.
    """

    was_clean: bool
    log_end: int
    fault: str
    tail_file: Path | None
    dispatched_from: int
    rebuilt: bool
    missing_bytes: int = 0
    remade: str = ""


def find_last_record(log: CommitLog, queues: ConsumeQueues) -> int | None:
    """Return the last message that a queue refers to; None if it is not in the log."""
    last = -1
    for queue in queues:
        queue.end = queue.find_end()
        unit = queue.last()
        last = last if unit is None else max(last, unit.offset)
    return last if log.begin <= last and log.message(last) is not None else None


def find_log_end(log: CommitLog, begin: int, checks: int = 0) -> LogWalk:
    """Set the log's end and last message, scanning from a message that precedes the end.

    `checks` are additional HS_CHECK_ flags. Returns the scan.
    """
    walk = LogWalk(log, begin, log.checks | checks)
    while walk.advance():
        log.last_offset = walk.last.offset
        log.last_timestamp = walk.last.store_timestamp
    log.end = walk.offset
    return walk


def near_the_end(log: CommitLog, queues: ConsumeQueues) -> int:
    """Return a message close to the end of a log that was closed or is being written."""
    last = find_last_record(log, queues)
    return start_of_sound_file(log) if last is None else last


def start_of_sound_file(log: CommitLog, start: int | None = None) -> int:
    """Return the last file that begins with a message, or the last such file up to `start`."""
    if start is None:
        start = log.segments.starts[-1] if log.segments.starts else log.begin
    while start > log.begin and log.message(start) is None:
        start -= log.segments.size
    return max(start, log.begin)


class Recovery:
    """The recovery of one store. Methods raise OSError, StoreDamagedError."""

    def __init__(self, store: ReadableStore, dispatcher: Dispatcher) -> None:
        self._log = store.log
        self._queues = store.queues
        self._index = store.index
        self._dispatcher = dispatcher
        self._path = store.folder / layout.DISPATCHED
        self._tail_folder = store.folder / layout.CUT_TAILS
        self._recorded = Dispatched.load(self._path)
        self._remade = ""

    def run(self, was_clean: bool) -> Recovered:
        """Bring everything to the end of the log; call `check_log` first."""
        log = self._log
        can_continue = self._check_queues_and_index(was_clean)
        if not was_clean:
            # Only another program's store, or one that was never saved, lacks `dispatched`.
            recorded = self._recorded
            log.segments.sync_again(recorded.offset if recorded else log.segments.end)
        walk = self._find_end(was_clean)
        fault = "" if walk.stop_reason == lib.HS_FOUND_NOTHING else FAULTS[walk.stop_reason]
        tail_file = _save_tail(log.segments, log.end, self._tail_folder)
        if log.segments.cut(log.end):
            log.segments.sync()
        log.flushed = log.end
        begin = self._dispatch_rest(was_clean) if can_continue else None
        rebuilt = begin is None and log.end > log.begin
        if begin is None:
            begin = self._rebuild()
        self._queues.add_to(log.queues)
        missing = max(self._recorded.offset - log.end, 0) if self._recorded else 0
        return Recovered(
            was_clean, log.end, fault, tail_file, begin, rebuilt, missing, self._remade
        )

    def _find_end(self, was_clean: bool) -> LogWalk:
        """Scan what may be damaged: after a clean stop only what no queue refers to."""
        if was_clean:
            return find_log_end(self._log, near_the_end(self._log, self._queues))
        checks = 0
        if self._recorded is not None:  # not RocketMQ's, which stores zeros in properties
            checks = lib.HS_CHECK_TEXT
            checks |= lib.HS_CHECK_HAS_CRC if self._log.has_property_crc else 0
        return find_log_end(self._log, self._synced_message(), checks)

    def check_log(self, was_clean: bool) -> None:
        """Remove files behind a missing or short one if they were never synced.

        It runs first, so that a store that cannot be opened stays unchanged. Raises
        StoreDamagedError.
        """
        segments = self._log.segments
        if not was_clean and self._recorded:
            synced = self._recorded.offset
            gap = segments.first_gap()
            if gap is not None and gap >= synced:
                segments.remove_from(gap)
            if (end := segments.first_short(synced)) is not None:
                segments.remove_from(end)
        segments.check(repair=True)

    def _check_queues_and_index(self, was_clean: bool) -> bool:
        """Load the index; return whether its files and those of each queue are complete."""
        part = "queues"
        try:
            for queue in self._queues:
                gap = queue.segments.first_gap()
                if gap is not None and not was_clean:
                    queue.segments.remove_from(gap)
                queue.segments.check(repair=True)
            part = "index"
            self._index.load()
        except StoreDamagedError as error:
            self._remade = f"{part} ({error})"
            return False
        return True

    def _synced_message(self) -> int:
        """Return a message before which the whole log was synced: the start of its file."""
        log = self._log
        if self._recorded is None or not log.begin <= self._recorded.offset <= log.segments.end:
            return log.begin
        return start_of_sound_file(log, log.segments.start_of(self._recorded.offset))

    def _find_resume_offset(self, was_clean: bool) -> int | None:
        """Return where dispatch resumes after rewinding queues and index, or None."""
        recorded, begin, end = self._recorded, self._log.begin, self._log.end
        if recorded and recorded.offset > end:
            return None  # queues and index refer to lost messages
        if recorded and begin <= recorded.offset and (recorded.offset == end or not was_clean):
            return self._rewind(recorded, was_clean)
        # Another program has written here; if it closed the store, it has dispatched everything.
        return self._accept_queues_and_index() if was_clean else None

    def _rewind(self, recorded: Dispatched, was_clean: bool) -> int | None:
        """Rewind queues and index to the recorded state; None if something is missing."""
        for queue in self._queues:
            queue.cut(queue.find_end(recorded.offset))
        self._queues.drop_empty()
        queues, units, first_units = self._queues.counts()
        if (queues, units, first_units) != (recorded.queues, recorded.units, recorded.first_units):
            self._remade = (
                f"queues ({queues} queues with {units - first_units} units are there, of"
                f" {recorded.queues} with {recorded.units - recorded.first_units})"
            )
            return None
        if self._rewind_index(recorded, was_clean):
            return recorded.offset
        count = len(self._index.files)
        self._remade = f"index (files that are there: {count}, recorded: {recorded.index_files})"
        return None

    def _rewind_index(self, recorded: Dispatched, was_clean: bool) -> bool:
        names = [file.path.name for file in self._index.files][: recorded.index_files]
        if (len(names), names[-1] if names else "") != (recorded.index_files, recorded.index_file):
            return False
        for file in self._index.files[recorded.index_files :]:
            self._index.remove(file)
        last = self._index.last
        is_as_recorded = last is not None and last.raw_header.hex() == recorded.index_header
        # After a power cut the header may be older than the slots, which rewinding makes again.
        if last is not None and not (was_clean and is_as_recorded):
            try:
                last.rewind(bytes.fromhex(recorded.index_header))
            except StoreDamagedError:
                return False
        return True

    def _accept_queues_and_index(self) -> int | None:
        """Accept queues and index as they are; None if messages exist and they are empty."""
        end = self._log.end
        position = self._log.begin
        for queue in self._queues:
            queue.cut(queue.find_end(end))
            if (unit := queue.last()) is not None:
                position = max(position, unit.offset + unit.size)
        self._queues.drop_empty()
        last = self._index.last
        if end > self._log.begin and (last is None or len(self._queues) == 0):
            return None
        self._dispatcher.indexed_to = last.header.end_offset if last is not None else -1
        return position

    def _dispatch_rest(self, was_clean: bool) -> int | None:
        """Dispatch what queues and index lack. Return where that begins; None if it is unknown."""
        begin = self._find_resume_offset(was_clean)
        if begin is None:
            return None
        self._queues.add_to(self._queues.table)
        self._dispatcher.position = begin
        self._dispatcher.timestamp = self._log.last_timestamp
        try:
            self._dispatcher.run(self._log.end)
        except GapError:
            return None
        return begin

    def _rebuild(self) -> int:
        symlinks.remove(self._path, missing_ok=True)
        symlinks.sync_folder(self._path.parent)
        self._index.discard()
        for queue in self._queues:
            self._cut_if_readable(queue)
        self._queues.rebuild()
        self._dispatcher.rebuild(self._log.begin, self._log.end)
        self._dispatcher.timestamp = self._log.last_timestamp
        self._queues.end_rebuild()
        return self._log.begin

    def _cut_if_readable(self, queue: ConsumeQueue) -> None:
        """Keep the end of a queue without messages in the log, if its files are readable."""
        try:
            queue.segments.check(repair=True)
        except StoreDamagedError:
            queue.end = 0
            return
        queue.cut(queue.find_end(self._log.end))


def _save_tail(segments: Segments, offset: int, folder: Path) -> Path | None:
    """Copy the bytes from an offset on to a new file named after it; None if all are zeros.

    Recovery cuts them off, and sound messages may follow a damaged one. The copy is synced.
    """
    at = segments.first_data(offset)
    if at is None:
        return None
    layout.make_folder(folder)
    path, number = folder / layout.segment_name(offset), 0
    while path.exists():
        number += 1
        path = path.with_suffix(f".{number}")
    fd = symlinks.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(fd, "wb") as out:
        while at is not None:
            piece = segments.read(at, TAIL_PIECE).rstrip(b"\0")
            out.seek(at - offset)
            out.write(piece)
            at = segments.first_data(at + len(piece))
        out.flush()
        os.fsync(out.fileno())
    symlinks.sync_folder(folder)
    return path
