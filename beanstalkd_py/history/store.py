"""A message store in Apache RocketMQ's file format, open for writing.

    with Store.open("/var/lib/history") as store:
        appended = store.append([Message(topic="mails", body=b"...", properties={"KEYS": "4711"})])
        store.dispatch()
        store.query("mails", "4711")

`Options.flush` or the call decides when an append is durable. Queues and index follow the log
asynchronously. The store is thread-safe. It does not use gevent: a call that waits for the disk
blocks the event loop.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from beanstalkd_py import symlinks
from beanstalkd_py.errors import StoreDamagedError, StoreFullError, StoreUsageError
from beanstalkd_py.history._store import ffi, lib
from beanstalkd_py.history.files import layout, store_lock
from beanstalkd_py.history.files.checkpoint import Checkpoint
from beanstalkd_py.history.files.commit_log import Appended, CommitLog
from beanstalkd_py.history.files.compatibility import refuse_recovery, refuse_writing
from beanstalkd_py.history.files.consume_queue import ConsumeQueues
from beanstalkd_py.history.files.health import Health
from beanstalkd_py.history.files.index import Index
from beanstalkd_py.history.files.open_files import Descriptors
from beanstalkd_py.history.files.segments import Segments
from beanstalkd_py.history.files.size_detection import infer_sizes
from beanstalkd_py.history.message import Message, Stored, pack_items
from beanstalkd_py.history.options import (
    ARCHIVER_SIZES,
    STORE_FILE,
    Options,
    Retention,
    Sizes,
    load_sizes,
    sizes_as_text,
)
from beanstalkd_py.history.queries.lookup import ReadableStore
from beanstalkd_py.history.reader import StoreReader
from beanstalkd_py.history.writing.dispatch import Dispatcher
from beanstalkd_py.history.writing.expiry import Expired, Expiry
from beanstalkd_py.history.writing.flush import GroupCommit
from beanstalkd_py.history.writing.recovery import Recovered, Recovery
from beanstalkd_py.history.writing.upkeep import Upkeep

__all__ = [
    "ARCHIVER_SIZES",
    "Appended",
    "Message",
    "Options",
    "Retention",
    "Sizes",
    "Store",
    "StoreReader",
    "Stored",
]


class Store(ReadableStore):
    """A store opened with `Store.open`."""

    recovered: Recovered
    """The result of the recovery at the open."""

    def __init__(self, folder: Path, options: Options, sizes: Sizes) -> None:
        self._files = Descriptors(writable=True)
        segments = Segments(folder / layout.COMMIT_LOG, sizes.segment_bytes, self._files)
        log = CommitLog(segments, sizes, options.max_body_bytes)
        queues = ConsumeQueues(folder, sizes.queue_file_units, self._files)
        super().__init__(folder, sizes, log, queues, Index(folder, sizes))
        self.options = options
        self._resources = contextlib.ExitStack()
        self._is_open = True
        self._is_full = False
        self._health = Health(folder)
        self._append_lock = threading.Lock()
        self._commit = GroupCommit(log, self._health, options.flush_timeout_seconds)
        self._dispatcher = Dispatcher(log, queues, self.index)
        self._upkeep = Upkeep(self._health)
        self._upkeep_lock = threading.Lock()
        self._checkpoint = Checkpoint.load(folder / layout.CHECKPOINT)
        self._expiry: Expiry | None = None
        if options.retention is not None:
            self._expiry = Expiry(self, options.retention)

    @classmethod
    def open(cls, folder: str | Path, options: Options | None = None) -> Self:
        """Open a store, recover it if needed, and start its threads.

        Raises StoreUsageError (no store, other sizes, an unsupported RocketMQ store, or a symbolic
        link of another user), StoreLockedError, StoreDamagedError, OSError.
        """
        with layout.refusing_foreign_links(folder):
            return cls._open(symlinks.resolved(folder), options or Options())

    @classmethod
    def _open(cls, folder: Path, options: Options) -> Self:
        if not options.create:
            layout.check_is_store(folder)
        if folder.exists() and not folder.is_dir():
            raise StoreUsageError(f"{folder} is no folder")
        layout.make_folder(folder)
        with contextlib.suppress(PermissionError):  # a parent that this user cannot list
            symlinks.sync_folder(folder.parent)  # somebody else may have made the folder
        refuse_writing(folder)
        with contextlib.ExitStack() as resources:
            resources.callback(store_lock.StoreLock(folder).release)
            store = cls(folder, options, _agree_on_sizes(folder, options.sizes))
            resources.callback(store._files.close)
            resources.callback(store.index.close)
            store._start()
            store._resources = resources.pop_all()
        return store

    def _start(self) -> None:
        was_clean = store_lock.was_stopped_cleanly(self.folder)
        recovery = Recovery(self, self._dispatcher)
        if not was_clean:
            refuse_recovery(self.folder)
        recovery.check_log(was_clean)
        store_lock.mark_open(self.folder)
        for name in (layout.COMMIT_LOG, layout.CONSUME_QUEUE, layout.INDEX):
            layout.make_folder(self.folder / name)
        if load_sizes(self.folder) is None:
            layout.write_file(self.folder / STORE_FILE, sizes_as_text(self.sizes).encode())
        self.recovered = recovery.run(was_clean)
        self._save(confirm=True)
        options = self.options
        if options.background:
            self._upkeep.start_dispatching(self._dispatch_all)
            self._upkeep.start_task(options.flush_interval_seconds, self._commit.flush)
            self._upkeep.start_task(options.queue_flush_seconds, self._save)
            if options.retention is not None:
                self._upkeep.start_task(options.retention.interval_seconds, self._expire_if_due)

    def close(self) -> None:
        """Dispatch and sync everything and release the store. Raises StoreFailedError."""
        if not self._is_open:
            return
        try:
            self._upkeep.stop()
            if self._health.failure is None:
                self.dispatch()
                self._save(confirm=True)
                store_lock.mark_clean(self.folder)
        finally:
            self.abandon()
        self._health.check()

    def abandon(self) -> None:
        """Release the store without dispatching or syncing; the next open recovers it."""
        self._upkeep.stop()
        self._resources.close()
        self._is_open = False

    def append(
        self,
        messages: Iterable[Message] | bytes | bytearray | memoryview,
        durable: bool | None = None,
    ) -> Appended:
        """Append a batch atomically and return its position.

        A batch is an iterable of messages, or `hs_item` structures (csrc/store/store.h) one after
        another. With `durable` the call returns after a sync of the batch; None uses
        `Options.flush`.

        Raises MessageRefusedError and StoreFullError if nothing was appended; after
        StoreFailedError and FlushTimeoutError the batch may or may not be stored.
        """
        self._health.check()
        if not self._is_open:
            raise StoreUsageError(f"history store {self.folder} is closed")
        if self._is_full:
            raise StoreFullError(f"{self.folder}: the disk is too full for appends")
        if not isinstance(messages, bytes | bytearray | memoryview):
            messages = pack_items(messages, self.options.store_host)
        with memoryview(messages) as view, ffi.from_buffer("char[]", view) as items:
            count = self.log.check(items, view.nbytes)
            with self._append_lock, self._health.guard("the batch"):
                self._health.check()
                appended = self.log.append(items, view.nbytes, count, int(time.time() * 1000))
        self._upkeep.report_append()
        is_durable = self.options.flush == "sync" if durable is None else durable
        if is_durable:
            self._commit.wait(appended.end)
            self._upkeep.report_append()
        return appended

    def flush(self) -> None:
        """Sync everything appended so far. Raises StoreFailedError."""
        self._commit.flush()
        self._upkeep.report_append()

    def _dispatch_all(self) -> None:
        """Dispatch what may be visible: with synchronous flush only synced messages."""
        is_sync = self.options.flush == "sync"
        self._dispatcher.run(self.log.flushed if is_sync else self.log.end)

    def dispatch(self) -> None:
        """Add everything appended so far to queues and index.

        Raises StoreFullError if there is no space; the call can be repeated.
        """
        self._health.check()
        self.flush()
        with self._health.guard("queues or index"):
            self._dispatcher.run(self.log.end)

    @property
    def failure(self) -> BaseException | None:
        """The first failed write or sync, after which nothing is accepted."""
        return self._health.failure

    @property
    def no_space_error(self) -> OSError | None:
        """Why queues and index fall behind: the disk is full. Dispatch retries each second."""
        return self._upkeep.no_space_error

    @property
    def dispatched(self) -> int:
        """The log offset up to which messages are in queues and index."""
        return self._dispatcher.position

    def _save(self, confirm: bool = False) -> None:
        """Sync log, queues and index, and record how far they are on disk.

        With `confirm` the checkpoint gets the offset of the last message.
        """
        with self._upkeep_lock:
            self._commit.flush()
            with self._dispatcher.lock:
                if not self._dispatcher.is_settled:
                    return
                state, timestamp = self._dispatcher.state(), self._dispatcher.timestamp
            self._commit.flush()
            if state == self.recorded and not confirm:
                return
            try:
                self.queues.sync()
                self.index.sync()
                checkpoint = self._checkpoint
                checkpoint.log_timestamp = max(self._commit.flushed_timestamp, timestamp)
                checkpoint.queues_timestamp = checkpoint.index_timestamp = timestamp
                if confirm:
                    checkpoint.confirmed_offset = self.log.last_offset or 0
                checkpoint.save(self.folder / layout.CHECKPOINT)
                state.save(self.folder / layout.DISPATCHED)
            except OSError as error:
                raise self._health.fail(error) from error
            self.recorded = state

    def check_files(self) -> None:
        """Raise StoreFailedError if another program has removed a file of log or index.

        Further writes to such a file would be lost. Opening the store again recovers it.
        """
        self._health.check()
        with self._upkeep_lock, self._append_lock:
            missing = self.log.segments.missing() or self.index.missing()
        if missing is not None:
            raise self._health.fail(StoreDamagedError(f"{missing} was removed"))

    def _expire_if_due(self) -> None:
        assert self._expiry is not None
        if self._expiry.is_due():
            self.expire()
        self._is_full = self._expiry.is_full()

    def change_retention(self, retention: Retention) -> None:
        """Replace the retention rules. Raises StoreUsageError if the store was opened without."""
        if self._expiry is None:
            raise StoreUsageError(f"{self.folder} was opened without retention rules")
        with self._upkeep_lock:
            self._expiry.retention = retention

    def disk_bytes(self) -> int:
        """Return the disk space of log, queues and index."""
        log, queues, index = self.log.segments, list(self.queues), self.index.files
        files = sum(len(queue.segments.starts) for queue in queues)
        queue_bytes = files * self.sizes.queue_file_units * lib.HS_UNIT
        index_bytes = lib.hs_index_bytes(self.sizes.index_slots, self.sizes.index_entries)
        return len(log.starts) * log.size + queue_bytes + len(index) * int(index_bytes)

    def expire(self, now: float | None = None) -> Expired:
        """Remove files that expired at `now` (seconds since 1970) or exceed the disk limits.

        Without `Options.retention` nothing is removed. Raises OSError.
        """
        if self._expiry is None:
            return Expired()
        with self._upkeep_lock:
            expired = self._expiry.run(now)
        if expired.any:
            self._save()
        return expired


def _agree_on_sizes(folder: Path, wanted: Sizes | None) -> Sizes:
    """Return the sizes of an existing store, else `wanted`. StoreUsageError if they differ."""
    actual = load_sizes(folder)
    if actual is None and layout.segment_starts(folder / layout.COMMIT_LOG):
        actual = infer_sizes(folder, wanted)
    if actual is not None and wanted is not None and actual != wanted:
        raise StoreUsageError(f"{folder} has {actual}, not {wanted}")
    return actual or wanted or Sizes()
