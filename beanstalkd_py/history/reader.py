"""Read-only access to a store, also to one of RocketMQ's or one that a writer has open.

The reader changes no file, takes no lock and recovers nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from beanstalkd_py import symlinks
from beanstalkd_py.history._store import lib
from beanstalkd_py.history.files import layout, store_lock
from beanstalkd_py.history.files.checkpoint import Dispatched
from beanstalkd_py.history.files.commit_log import FAULTS, CommitLog
from beanstalkd_py.history.files.consume_queue import ConsumeQueues
from beanstalkd_py.history.files.index import Index
from beanstalkd_py.history.files.open_files import Descriptors
from beanstalkd_py.history.files.segments import Segments
from beanstalkd_py.history.files.size_detection import infer_sizes
from beanstalkd_py.history.options import Options, Sizes, load_sizes
from beanstalkd_py.history.queries.lookup import ReadableStore
from beanstalkd_py.history.writing.recovery import (
    find_last_record,
    find_log_end,
    start_of_sound_file,
)


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
        last = find_last_record(self.log, self.queues)
        begin = start_of_sound_file(self.log) if last is None else last
        walk = find_log_end(self.log, begin)
        if last is None:  # otherwise the ends are known, because no unit refers behind it
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

    def refresh_log(self) -> None:
        """Look for messages that the writer has added."""
        self.log.segments.refresh()
        find_log_end(self.log, self.log.end)

    def close(self) -> None:
        """Close all files."""
        self.index.close()
        self._files.close()
