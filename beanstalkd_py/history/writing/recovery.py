"""Opening a store for writing: where the log ends, and queues and index to match it.

Queues and index are made from the log, so after a stop of any kind they are taken back to the
offset up to which they are known to be on disk, and made again from there. If that offset is not
known, or something is missing before it, they are made from the first message on. It must not know
threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from beanstalkd_py import symlinks
from beanstalkd_py.errors import StoreDamagedError
from beanstalkd_py.history._store import lib
from beanstalkd_py.history.files import layout
from beanstalkd_py.history.files.commit_log import FAULTS, CommitLog, LogWalk
from beanstalkd_py.history.files.consume_queue import ConsumeQueue, ConsumeQueues
from beanstalkd_py.history.files.dispatched import Dispatched
from beanstalkd_py.history.files.index import Index
from beanstalkd_py.history.files.set_aside import set_aside
from beanstalkd_py.history.writing.dispatch import Dispatcher, GapError

EVERYTHING = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Recovered:
    """What opening a store found. `log_end` is where the log ends, bytes.

    `fault` says what is wrong with the record there, "" if nothing is. `set_aside` is the file that
    has the bytes from there on, None if there were none. `dispatched_from` is where
    queues and index were made anew from, `rebuilt` whether that was from the first message on.
    `missing_bytes` of the log had been on disk, as the file `dispatched` records, and are gone.
    `remade` says what of queues and index was missing and has been made again from the log.
    """

    was_clean: bool
    log_end: int
    fault: str
    set_aside: Path | None
    dispatched_from: int
    rebuilt: bool
    missing_bytes: int = 0
    remade: str = ""


def find_last_record(log: CommitLog, queues: ConsumeQueues) -> int | None:
    """Offset of the last message that is in a queue; None: queues cannot tell."""
    offsets = [-1]
    for queue in queues:
        end = queue.find_end(EVERYTHING)
        unit = queue.unit(end - 1) if end > queue.first else None
        if unit is not None and not unit.is_filler:
            offsets.append(unit.offset)
    found = max(offsets)
    return found if log.begin <= found and log.message(found) is not None else None


def find_log_end(log: CommitLog, begin: int, checks: int = 0) -> LogWalk:
    """Sets the log's end and last message, from a message that is known to be before the end.

    `checks` (HS_CHECK_) are those besides the usual ones. Returns the walk that ended there.
    """
    walk = LogWalk(log, begin, log.checks() | checks)
    while walk.advance(with_records=False):
        log.last_offset = walk.last.offset
        log.last_timestamp = walk.last.store_timestamp
    log.end = walk.offset
    return walk


def near_the_end(log: CommitLog, queues: ConsumeQueues) -> int:
    """A message close to the end of a log that was closed, or is being written."""
    begin = find_last_record(log, queues)
    last = log.segments.starts[-1] if log.segments.starts else log.begin
    return _start_of_sound_file(log, last) if begin is None else begin


def _start_of_sound_file(log: CommitLog, start: int) -> int:
    """The file that begins there, or the last one before it that begins with a message."""
    while start > log.begin and log.message(start) is None:
        start -= log.segments.size
    return max(start, log.begin)


class Recovery:
    """One opening of a store. Methods raise OSError, StoreDamagedError."""

    def __init__(
        self,
        store: Path,
        log: CommitLog,
        queues: ConsumeQueues,
        index: Index,
        dispatcher: Dispatcher,
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._path = store / layout.DISPATCHED
        self._aside = store / layout.SET_ASIDE
        self._said = Dispatched.load(self._path)
        self._remade = ""

    def run(self, was_clean: bool) -> Recovered:
        """Brings everything to the end of the log, after `check_log`."""
        log = self._log
        sound = self._check_queues(was_clean)
        if not was_clean:
            log.segments.sync_again(self._suspect())
        walk = self._find_end(was_clean)
        fault = "" if walk.why == lib.HS_FOUND_NOTHING else FAULTS[walk.why]
        aside = set_aside(log.segments, log.end, self._aside)
        if log.segments.cut(log.end):
            log.segments.sync()
        log.flushed = log.end
        begin = self._take_up(was_clean) if sound and self._load_index() else None
        if begin is not None:
            try:
                self._dispatch(begin)
            except GapError:
                begin = None
        rebuilt = begin is None and log.end > log.begin
        if begin is None:
            begin = self._rebuild()
        self._tell_encoder()
        missing = max(self._said.offset - log.end, 0) if self._said is not None else 0
        return Recovered(was_clean, log.end, fault, aside, begin, rebuilt, missing, self._remade)

    def _find_end(self, was_clean: bool) -> LogWalk:
        """Goes over what may be damaged: after a clean stop only what queues do not know."""
        if was_clean:
            return find_log_end(self._log, near_the_end(self._log, self._queues))
        checks = 0
        if self._said is not None:  # RocketMQ did not write this: it stores zeros in properties
            checks = lib.HS_CHECK_TEXT
            checks |= lib.HS_CHECK_HAS_CRC if self._log.has_property_crc else 0
        return find_log_end(self._log, self._durable(), checks)

    def check_log(self, was_clean: bool) -> None:
        """Files behind one that is missing go, if they were never synced. StoreDamagedError.

        This is before anything else, so that a store that cannot be opened is left as it is.
        """
        segments = self._log.segments
        gap = segments.first_gap()
        if gap is not None and not was_clean and self._said and gap >= self._said.offset:
            segments.remove_from(gap)
        segments.check(repair=True)

    def _check_queues(self, was_clean: bool) -> bool:
        """Whether the files of each queue follow each other."""
        try:
            for queue in self._queues:
                gap = queue.segments.first_gap()
                if gap is not None and not was_clean:
                    queue.segments.remove_from(gap)
                queue.segments.check(repair=True)
        except StoreDamagedError as error:
            self._remade = f"queues ({error})"
            return False
        return True

    def _durable(self) -> int:
        """A message of the log before which all of it was synced: where its file begins."""
        log = self._log
        if self._said is None or not log.begin <= self._said.offset <= log.segments.end:
            return log.begin
        return _start_of_sound_file(log, log.segments.start_of(self._said.offset))

    def _suspect(self) -> int:
        """Offset from which on a process that was killed may have written what no sync covered."""
        if self._said is None:  # another program's store, or one that has never been saved
            return self._log.segments.end
        return self._said.offset

    def _load_index(self) -> bool:
        try:
            self._index.load()
        except StoreDamagedError as error:
            self._remade = f"index ({error})"
            return False
        return True

    # --- where to go on ----------------------------------------------------------------------

    def _take_up(self, was_clean: bool) -> int | None:
        """Where dispatching goes on, with queues and index as they were then. None: nowhere."""
        said, end = self._said, self._log.end
        if said is not None and said.offset > end:
            return None  # messages have got lost that queues and index know
        is_ours = said is not None and (said.offset == end or not was_clean)
        if is_ours and said is not None and self._log.begin <= said.offset:
            return self._rewind(said)
        # Else another program has written here; if it has closed the store, it has dispatched all.
        return self._trust() if was_clean else None

    def _rewind(self, said: Dispatched) -> int | None:
        """Takes queues and index back to what `dispatched` says. None: something is missing."""
        for queue in self._queues:
            queue.cut(queue.find_end(said.offset))
        self._queues.drop_empty()
        there = (len(self._queues), self._queues.units(), self._queues.first_units())
        if there != (said.queues, said.units, said.first_units):
            units = self._queues.units() - self._queues.first_units()
            self._remade = (
                f"queues ({there[0]} queues with {units} units are there, of {said.queues} with"
                f" {said.units - said.first_units})"
            )
            return None
        if not self._rewind_index(said):
            self._remade = (
                f"index (files that are there: {len(self._index.files)}, recorded:"
                f" {said.index_files})"
            )
            return None
        return said.offset

    def _rewind_index(self, said: Dispatched) -> bool:
        names = [file.path.name for file in self._index.files]
        if names[said.index_files - 1 : said.index_files] != [said.index_file][: said.index_files]:
            return False
        for file in self._index.files[said.index_files :]:
            self._index.remove(file)
        last = self._index.last
        if last is not None and last.raw_header.hex() != said.index_header:
            try:
                last.rewind(bytes.fromhex(said.index_header))
            except StoreDamagedError:
                return False
        return True

    def _trust(self) -> int | None:
        """Queues and index as they are. None if there are none though there are messages."""
        end = self._log.end
        position = self._log.begin
        for queue in self._queues:
            queue.cut(queue.find_end(end))
            unit = queue.unit(queue.end - 1) if queue.end > queue.first else None
            if unit is not None and not unit.is_filler:
                position = max(position, unit.offset + unit.size)
        self._queues.drop_empty()
        last = self._index.last
        if end > self._log.begin and (last is None or len(self._queues) == 0):
            return None
        self._dispatcher.indexed_to = last.header.end_offset if last is not None else -1
        return position

    # --- going on ----------------------------------------------------------------------------

    def _dispatch(self, begin: int) -> None:
        self._queues.enter()
        self._dispatcher.position = begin
        self._dispatcher.timestamp = self._log.last_timestamp
        self._dispatcher.run(self._log.end)

    def _rebuild(self) -> int:
        """Makes queues and index from the first message on."""
        symlinks.remove(self._path, missing_ok=True)
        layout.sync_folder(self._path.parent)
        self._index.discard()
        self._queues.restart()
        for queue in self._queues:
            self._cut_if_readable(queue)
        self._queues.rebuild()
        self._dispatcher.restart(self._log.begin)
        self._dispatcher.fills = True
        self._dispatcher.run(self._log.end)
        self._dispatcher.fills = False
        self._dispatcher.timestamp = self._log.last_timestamp
        self._queues.end_rebuild()
        return self._log.begin

    def _cut_if_readable(self, queue: ConsumeQueue) -> None:
        """A queue that no message of the log belongs to keeps its end, if it can be known."""
        try:
            queue.segments.check(repair=True)
        except StoreDamagedError:
            queue.end = 0
            return
        queue.cut(queue.find_end(self._log.end))

    def _tell_encoder(self) -> None:
        for queue in self._queues:
            topic = queue.topic.encode("utf-8", "surrogateescape")
            next_offset = queue.end
            if (
                lib.hs_queues_set(self._log.queues, topic, len(topic), queue.queue_id, next_offset)
                < 0
            ):
                raise MemoryError
