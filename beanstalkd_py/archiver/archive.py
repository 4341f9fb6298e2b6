"""Archive the jobs of binlog folders that a server writes to, or that no server uses.

    archive = Archive(store, folders, durable_position)
    while archive.step():
        ...
    archive.release_files()

The UNIQ_KEY of a message holds the file and offset of the entry that ended its job. Opening an
archive compares these with the store's newest messages, so every job is archived exactly once. A
done file is removed when no later message needs it and all of its messages are on disk.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from beanstalkd_py.archiver.archived_position import ArchivedPositions
from beanstalkd_py.archiver.folder_identity import identity_of, new_identity
from beanstalkd_py.archiver.shipped_files import unshipped_from
from beanstalkd_py.archiver.store_settings import StoreSettings
from beanstalkd_py.binlog.done_files import DoneFile, list_done_files, remove_files
from beanstalkd_py.binlog.layout import REPLICA, binlog_files, number_of, top_of
from beanstalkd_py.core.job_history import HistoryStats, JobHistories
from beanstalkd_py.core.shared_memory import BinlogPosition
from beanstalkd_py.errors import StoreFullError, StoreUsageError
from beanstalkd_py.history.files.health import is_no_space
from beanstalkd_py.history.message import UNIQ_KEY, Stored
from beanstalkd_py.history.store import Store
from beanstalkd_py.history.topics import escape
from beanstalkd_py.regular_file import NOT_REGULAR, open_regular

HEADER_BYTES = 4
PIECE_BYTES = 1 << 20
"""Bytes of a binlog that are read at once."""
START = BinlogPosition(0, 0)
WHOLE_FOLDER = BinlogPosition(2**32 - 1, 0)
"""A durable position behind every file."""
READ_TRIES = 5
"""Failed steps in a row before `finish` gives up; JobHistories skips unreadable bytes after three.
"""
RECORD_BYTES = 128 << 10
"""Upper bound for the bytes of a message without its body; properties have at most 32 KiB."""

DurablePosition = Callable[[int], BinlogPosition]
"""Returns the durable position of the folder with this index."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One binlog folder. `key` begins its UNIQ_KEYs; `index` is that of JobHistories, too."""

    path: Path
    key: str
    index: int


class Archive:
    """Reads the folders and appends to the store. The caller closes the store."""

    def __init__(
        self, store: Store, folders: Iterable[Path], durable_position: DurablePosition
    ) -> None:
        """Find the archived position of every folder. Raises StoreDamagedError, OSError."""
        self._store = store
        self._durable_position = durable_position
        self.archived = 0
        """Messages appended by this object."""
        self.freed_bytes = 0
        """Disk space of the files that this object removed."""
        self.read_error = ""
        """Why the last step could not read a binlog, or ""."""
        self._pending = b""
        self._pending_count = 0
        self._state_bytes = 0
        self._gaps: dict[str, tuple[int, int]] = {}
        """By folder key: the file behind missing ones, and the last file at that time."""
        store.dispatch()
        positions = ArchivedPositions.load(store.folder)
        missing = positions.log_end - store.log.end
        self.missing_bytes = max(store.recovered.missing_bytes, missing, 0)
        """Bytes of the commit log that were on disk once and were missing at the open."""
        if missing > 0:
            # The file `archived` records messages that the store has lost, so read the remaining
            # binlog files again. Remove `archived` first: it would be valid again once the log grew
            # to its old length.
            positions = ArchivedPositions()
            ArchivedPositions.forget(store.folder)
        self._positions = positions
        ended = last_positions(store)
        self._histories = JobHistories(_topic_of, most_body=largest_body(store))
        try:
            if positions.checkpoint:
                self._histories.load_checkpoint(positions.checkpoint)
            self._shards = [self._shard(path, i, ended) for i, path in enumerate(folders)]
        except BaseException:
            self._histories.close()
            raise

    def _shard(self, path: Path, index: int, ended: dict[str, BinlogPosition]) -> Shard:
        positions = self._positions
        key = identity_of(path, index)
        last = max(ended.get(key, START), positions.read.get(key, START))
        is_replica = (top_of(path) / REPLICA).exists()  # which has the file numbers of its queue
        if last.file > max(sizes_of(path), default=0) and not is_replica:
            # The folder was emptied, and its file numbers begin anew.
            key = new_identity(path, index)
        # Finish removals that a crash interrupted.
        remove_files(done_files_below(path, positions.removable_below.get(key, 0)))
        self._histories.add_folder(path, key)
        archived = ended.get(key, START)
        if key in positions.read:
            read = positions.read[key]
            self._histories.set_checkpointed(index, *read)
            # An entry that begins at the read position is not archived yet.
            archived = max(archived, BinlogPosition(read.file, read.offset - 1))
        if archived > START:
            self._histories.set_archived(index, *archived)
        return Shard(path, key, index)

    def close(self) -> None:
        self._histories.close()

    # --- reading --------------------------------------------------------------------------------

    def step(self) -> bool:
        """Read a piece of each folder, append the finished jobs, and return whether there is more.

        Raises StoreFullError if the store has no space; nothing is lost, and the call can be
        repeated. Raises StoreFailedError if this object can no longer be used. A binlog that cannot
        be read sets `read_error` and is retried by the next calls.
        """
        self._append_pending()
        more = False
        self.read_error = ""
        for shard in self._shards:
            try:
                progress = self._histories.read(
                    shard.index, *self._durable_position(shard.index), PIECE_BYTES
                )
            except OSError as error:
                self.read_error = f"{shard.path}: {error}"
                continue
            more = more or progress.more
            if progress.count:
                self._pending, self._pending_count = progress.items, progress.count
                self._append_pending()
        return more

    def finish(self) -> None:
        """Archive everything durable and release the files. Raises OSError, errors of `step`."""
        tries = 0
        while self.step() or self.read_error:
            tries = tries + 1 if self.read_error else 0
            if tries > READ_TRIES:
                raise OSError(f"cannot read a binlog: {self.read_error}")
        self.release_files()

    def _append_pending(self) -> None:
        if self._pending_count:
            self._store.append(self._pending)
            self.archived += self._pending_count
            self._pending, self._pending_count = b"", 0

    def drop_unseen_jobs(self) -> None:
        """Drop open jobs that no folder has any more, after all were read to their ends."""
        self._histories.drop_unseen()

    def all_recovered(self) -> bool:
        """Return whether every folder has a durable position: a worker has recovered it."""
        return all(self._durable_position(shard.index).file > 0 for shard in self._shards)

    def faults(self) -> list[str]:
        """Return the faults found in binlogs since the last call, as `path:offset: what`."""
        return [
            f"{self._shards[fault.folder].path}/binlog.{fault.file}:{fault.offset}: {fault.what}"
            for fault in self._histories.faults()
        ]

    @property
    def job_stats(self) -> HistoryStats:
        return self._histories.stats

    def behind(self) -> int:
        """Return the bytes of binlog files that are durable and not read yet. Raises OSError."""
        return sum(map(self._behind, self._shards))

    def _behind(self, shard: Shard) -> int:
        file, offset = self._histories.position(shard.index)
        durable_file, durable_end = self._durable_position(shard.index)
        if durable_end == HEADER_BYTES:
            durable_end = 0  # the file has no entries yet, and is not read
        if file == durable_file:
            return max(0, durable_end - offset)
        sizes = sizes_of(shard.path)
        ahead = sum(size for number, size in sizes.items() if file <= number < durable_file)
        return max(0, ahead - offset) + (durable_end if durable_file in sizes else 0)

    # --- removing files -------------------------------------------------------------------------

    def release_files(self, thorough: bool = True) -> bool:
        """Sync the store, save the read positions and remove done files that are no longer needed.

        Without `thorough`, do so only if it frees more than it writes. Return whether it was done.
        Raises OSError, StoreFailedError, and StoreFullError if the positions cannot be saved.
        """
        self._store.check_files()
        if self._pending_count:
            return False
        removable = {shard.key: self._removable(shard) for shard in self._shards}
        freed = sum(each.size for files in removable.values() for each in files)
        if not thorough and freed <= self._state_bytes:
            return False
        self._store.flush()
        # Keep the state of folders that are not there now.
        positions = self._positions
        positions.checkpoint = self._histories.save_checkpoint()
        positions.log_end = self._store.log.end
        for shard in self._shards:
            positions.read[shard.key] = BinlogPosition(*self._histories.position(shard.index))
            positions.removable_below[shard.key] = self._removable_below(shard)
        try:
            self._state_bytes = positions.save(self._store.folder)
        except OSError as error:
            if not is_no_space(error):
                raise
            text = f"{self._store.folder}: cannot save the archived positions: {error}"
            raise StoreFullError(text) from error
        for files in removable.values():
            remove_files(files)
        self.freed_bytes += freed
        return True

    def removable_bytes(self) -> int:
        """Return the disk space of the files that `release_files` would remove. Raises OSError."""
        return sum(each.size for shard in self._shards for each in self._removable(shard))

    def _removable(self, shard: Shard) -> list[DoneFile]:
        return done_files_below(shard.path, self._removable_below(shard))

    def _removable_below(self, shard: Shard) -> int:
        unshipped = unshipped_from(top_of(shard.path), shard.key)
        needed = max(self._histories.needed_from(shard.index), self._behind_gap(shard))
        return min(needed, unshipped)

    def _behind_gap(self, shard: Shard) -> int:
        """Return the file behind missing ones if no done file below it is needed, else 0.

        Jobs there that seem to be open have ended in the missing files, or are in later ones, too.
        The files that existed when the gap was found are read first.
        """
        numbers = sorted(sizes_of(shard.path))
        live = {number_of(path) for path in binlog_files(shard.path)}
        gap = next((after for before, after in pairwise(numbers) if after > before + 1), 0)
        if any(number < gap for number in live):
            gap = 0  # a file in use is below it
        known = self._gaps.get(shard.key)
        if known is None or known[0] != gap:
            known = self._gaps[shard.key] = (gap, max(numbers, default=0))
        return gap if self._histories.position(shard.index)[0] > known[1] else 0


def done_files_below(folder: Path, number: int) -> list[DoneFile]:
    return [each for each in list_done_files(folder) if each.number < number]


def last_positions(store: Store) -> dict[str, BinlogPosition]:
    """Return where the last archived job of each folder ended, by the folder's key.

    A tube belongs to one folder, so the last message of each topic is sufficient.
    """
    positions: dict[str, BinlogPosition] = {}
    for queue in store.queues:
        unit = queue.last()
        message = store.message(unit.offset) if unit is not None else None
        parsed = message and position_of(message)
        if parsed:
            key, position = parsed
            positions[key] = max(position, positions.get(key, position))
    return positions


def position_of(message: Stored) -> tuple[str, BinlogPosition] | None:
    """Return the folder key and the position of the job's end; None for a foreign message."""
    match message.properties.get(UNIQ_KEY, "").rsplit("-", 2):
        case [key, file, offset] if file.isdecimal() and offset.isdecimal():
            return key, BinlogPosition(int(file), int(offset))
    return None


def sizes_of(folder: Path) -> dict[int, int]:
    """Return the bytes of each binlog file of a folder, done files included. Raises OSError."""
    sizes = {each.number: each.size for each in list_done_files(folder)}
    for path in binlog_files(folder):
        with contextlib.suppress(FileNotFoundError):
            sizes[number_of(path)] = path.stat().st_size
    return sizes


def largest_body(store: Store) -> int:
    """Return the longest body that a message can have. Raises StoreUsageError if none fits."""
    space = store.sizes.segment_bytes - RECORD_BYTES
    if space < 0:
        raise StoreUsageError(
            f"{store.folder} has log files of {store.sizes.segment_bytes} bytes, too small for"
            " timelines of jobs; give another folder"
        )
    return min(store.options.max_body_bytes, space)


def _topic_of(tube: bytes) -> bytes:
    return escape(tube.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def sync_files(folder: Path) -> None:
    """Sync the files of a folder, which a killed server may have left unsynced. Raises OSError."""
    for path in binlog_files(folder):
        try:
            fd = open_regular(path)
        except OSError as error:
            if error.errno == NOT_REGULAR:
                continue  # the reader reports it
            raise
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)


def describe_losses(store: Store, archive: Archive) -> list[str]:
    """Return one sentence for each part of the store that was missing or damaged."""
    recovered = store.recovered
    losses = []
    cut_bytes = 0
    if recovered.tail_file is not None:
        cut_bytes = recovered.tail_file.stat().st_size
        why = recovered.fault or "nothing was written"
        losses.append(
            f"the history ends at offset {recovered.log_end}: {why}; the bytes behind it are kept"
            f" in {recovered.tail_file}, and jobs recorded only there are missing from the history"
        )
    if archive.missing_bytes > cut_bytes:
        losses.append(
            f"{store.log.segments.folder} ends at offset {recovered.log_end}, but"
            f" {archive.missing_bytes} more bytes were on disk: files of the log are missing; jobs"
            " that ended there are archived again if the binlog still has them"
        )
    if recovered.remade:
        losses.append(f"rebuilt the {recovered.remade} of {store.folder} from the log")
    return losses


def archive_rest(
    settings: StoreSettings, folders: Iterable[Path], report: Callable[[str], None]
) -> int:
    """Archive all finished jobs of folders without a server. Return the number of messages.

    `report` gets a sentence for each loss of data in the store. Raises StoreError, OSError.
    """
    folders = list(folders)
    for folder in folders:
        sync_files(folder)
    with Store.open(settings.folder, settings.options(background=False)) as store:
        archive = Archive(store, folders, lambda index: WHOLE_FOLDER)
        try:
            for text in describe_losses(store, archive):
                report(text)
            archive.finish()
            return archive.archived
        finally:
            archive.close()
