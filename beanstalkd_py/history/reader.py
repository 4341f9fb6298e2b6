"""class StoreReader: a store that is only read, also one of RocketMQ's, also beside its writer.

No file is changed, no lock taken, nothing recovered.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from beanstalkd_py.errors import StoreUsageError
from beanstalkd_py.history._store import lib
from beanstalkd_py.history.files import layout, store_lock
from beanstalkd_py.history.files.commit_log import FAULTS, CommitLog
from beanstalkd_py.history.files.consume_queue import ConsumeQueues
from beanstalkd_py.history.files.dispatched import Dispatched
from beanstalkd_py.history.files.index import Index
from beanstalkd_py.history.files.open_files import Descriptors
from beanstalkd_py.history.files.segments import Segments
from beanstalkd_py.history.files.size_detection import infer_readable_sizes
from beanstalkd_py.history.options import Options, Sizes, load_sizes
from beanstalkd_py.history.queries.lookup import ReadableStore
from beanstalkd_py.history.writing.recovery import EVERYTHING, find_log_end, near_the_end


class StoreReader(ReadableStore):
    """`StoreReader.open` makes one."""

    fault: str
    """What is wrong with the record at the end of the log, "" if nothing is."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        """For `open`."""
        self._files = Descriptors(writable=False)
        super().__init__(folder, sizes, *self._look(folder, sizes))
        self._find_ends()

    def _look(self, folder: Path, sizes: Sizes) -> tuple[CommitLog, ConsumeQueues, Index]:
        # First what is recorded of the other files: its writer only adds to them meanwhile.
        self.was_open = not store_lock.was_stopped_cleanly(folder)
        self.recorded = Dispatched.load(folder / layout.DISPATCHED)
        segments = Segments(folder / layout.COMMIT_LOG, sizes.segment_bytes, self._files)
        queues = ConsumeQueues(folder, sizes.queue_file_units, self._files)
        index = Index(folder, sizes)
        index.load_readable()
        return CommitLog(segments, sizes, Options().max_body_bytes), queues, index

    @classmethod
    def open(cls, folder: str | Path, sizes: Sizes | None = None) -> Self:
        """`sizes` None: as `store.json` says, or else as the files tell.

        StoreUsageError if it is no store. An index file of a wrong size is left out; see
        `Index.unreadable`.
        """
        folder = Path(folder)
        if not (folder / layout.COMMIT_LOG).is_dir():
            raise StoreUsageError(f"{folder} is no history store: it has no folder commitlog")
        return cls(folder, sizes or load_sizes(folder) or infer_readable_sizes(folder))

    def _find_ends(self) -> None:
        walk = find_log_end(self.log, near_the_end(self.log, self.queues))
        for queue in self.queues:
            queue.end = queue.find_end(self.log.end)
        is_end = walk.why == lib.HS_FOUND_NOTHING or self.has_foreign_tail()
        self.fault = "" if is_end else FAULTS[walk.why]

    def has_foreign_tail(self) -> bool:
        """Whether bytes behind the end of the log are what RocketMQ leaves there.

        With writeWithoutMmap it writes more than the record. This package leaves zeros, and a queue
        that leads behind the end proves that a record there was damaged.
        """
        if self.recorded is not None and self.recorded.offset >= self.log.end:
            return False
        return all(queue.find_end(EVERYTHING) == queue.end for queue in self.queues)

    def refresh(self) -> None:
        """Looks for what its writer has written since."""
        self.index.close()
        self.log, self.queues, self.index = self._look(self.folder, self.sizes)
        self._find_ends()

    def refresh_log(self) -> None:
        """Looks for messages that its writer has written since."""
        self.log.segments.refresh()
        find_log_end(self.log, self.log.end)

    def close(self) -> None:
        """Closes its files."""
        self.index.close()
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
