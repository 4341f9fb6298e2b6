"""Read-only access to a store, also to one of RocketMQ's or one that a writer has open.

The reader changes no file, takes no lock and recovers nothing.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Self

from beanstalkd_py import symlinks
from beanstalkd_py.history._store import lib
from beanstalkd_py.history.files import layout, store_lock
from beanstalkd_py.history.files.checkpoint import Dispatched
from beanstalkd_py.history.files.commit_log import FAULTS, CommitLog
from beanstalkd_py.history.files.consume_queue import ConsumeQueue, ConsumeQueues
from beanstalkd_py.history.files.index import Index
from beanstalkd_py.history.files.open_files import Descriptors
from beanstalkd_py.history.files.segments import Segments
from beanstalkd_py.history.files.size_detection import infer_sizes
from beanstalkd_py.history.options import Options, Sizes, load_sizes
from beanstalkd_py.history.queries.lookup import ReadableStore
from beanstalkd_py.history.writing.dispatch import DispatchReader
from beanstalkd_py.history.writing.recovery import (
    find_last_record,
    find_log_end,
    start_of_sound_file,
)

MS_PER_S = 1000
SETTLED_MS = 5000
"""For how long nothing was stored before, if no unit of a message can still be missing."""


class StoreReader(ReadableStore):
    """A store opened with `StoreReader.open`."""

    fault: str
    """The fault of the record at the end of the log, or ""."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        self._files = Descriptors(writable=False)
        super().__init__(folder, sizes, *self._open_files(folder, sizes))
        self._find_ends()

    def _open_files(self, folder: Path, sizes: Sizes) -> tuple[CommitLog, ConsumeQueues, Index]:
        # Read `dispatched` first: the writer only adds to the other files meanwhile.
        self.was_open = not store_lock.was_stopped_cleanly(folder)
        self.recorded = Dispatched.load(folder / layout.DISPATCHED)
        segments = Segments(folder / layout.COMMIT_LOG, sizes.segment_bytes, self._files)
        queues = ConsumeQueues(folder, sizes.queue_file_units, self._files)
        index = Index(folder, sizes)
        index.load_readable()
        self._is_numbered = False
        self._late: dict[ConsumeQueue, int] = {}
        """The ends of queues that have messages whose units are not written yet."""
        return CommitLog(segments, sizes, Options().max_body_bytes), queues, index

    @classmethod
    def open(cls, folder: str | Path, sizes: Sizes | None = None) -> Self:
        """Open a store; `sizes` defaults to `store.json`, then to detected sizes.

        Raises StoreUsageError if the folder is no store, or reached by a symbolic link of another
        user. `Index.unreadable` lists skipped index files.
        """
        with layout.refusing_foreign_links(folder):
            folder = symlinks.resolved(folder)
            layout.check_is_store(folder)
            sizes = sizes or load_sizes(folder)
            return cls(folder, sizes or infer_sizes(folder, reads_index=False))

    def _find_ends(self) -> None:
        begun_ms = time.time() * MS_PER_S
        last = find_last_record(self.log, self.queues)
        begin = start_of_sound_file(self.log) if last is None else last
        walk = find_log_end(self.log, begin)
        # Otherwise no unit refers behind the end. A writer may have added to queues that were read
        # before others.
        if last is None or self.log.last_timestamp > begun_ms - SETTLED_MS:
            for queue in self.queues:
                queue.end = queue.find_end(self.log.end)
        is_end = walk.stop_reason == lib.HS_FOUND_NOTHING or self.has_foreign_tail()
        self.fault = "" if is_end else FAULTS[walk.stop_reason]

    def has_foreign_tail(self) -> bool:
        """Return whether RocketMQ's writeWithoutMmap left the bytes behind the end of the log.

        This package leaves zeros there. A queue unit that refers to an offset behind the end proves
        that a record was damaged.
        """
        if self.recorded is not None and self.recorded.offset >= self.log.end:
            return False
        return all(queue.find_end() == queue.end for queue in self.queues)

    def refresh(self) -> None:
        """Read again what the writer has changed."""
        self.index.close()
        self.log, self.queues, self.index = self._open_files(self.folder, self.sizes)
        self._find_ends()

    def advance(self) -> None:
        """Do what `refresh` does, at a cost for what is new, unless files were removed."""
        log, before = self.log, self.log.segments.starts
        log.segments.refresh()
        if log.segments.starts[: len(before)] != before or not self._dispatch_new():
            self.refresh()
            return
        self._find_late()
        if layout.index_names(self.index.folder) != [one.path.name for one in self.index.files]:
            self.index.close()
            self.index.load_readable()

    def _dispatch_new(self) -> bool:
        """Move the ends of log and queues; return whether the queues continue where they ended."""
        log, queues, at = self.log, self.queues, self.log.end
        walk = find_log_end(log, at)
        self.fault = "" if walk.stop_reason == lib.HS_FOUND_NOTHING else FAULTS[walk.stop_reason]
        if at == log.end:
            return True
        if not self._is_numbered:
            queues.add_to(queues.table)
            self._is_numbered = True
        reader = DispatchReader(log.segments)
        while at < log.end:
            end = reader.read(queues.table, at, log.end)
            if end == at or reader.found.why == lib.HS_DISPATCH_GAP:
                return False
            for number in range(reader.found.run_count):
                run = reader.found.runs[number]
                self._late[queues.numbered(run.queue)] = run.first + run.count
            at = end
        return True

    def _find_late(self) -> None:
        """Move the ends of queues whose units the writer has added by now, after the messages."""
        for queue, end in list(self._late.items()):
            queue.segments.refresh()
            queue.end = queue.bisect(queue.end, end, lambda unit: unit.size > 0)
            if queue.end == end:
                del self._late[queue]

    def refresh_log(self) -> None:
        """Look for messages that the writer has added."""
        self.log.segments.refresh()
        find_log_end(self.log, self.log.end)

    def close(self) -> None:
        """Close all files."""
        self.index.close()
        self._files.close()
