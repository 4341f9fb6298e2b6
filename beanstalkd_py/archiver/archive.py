"""class Archive: folders of a binlog on one side, a history store on the other.

    archive = Archive(store, folders, safe_place)
    while archive.turn():
        ...
    archive.settle()

Each job that ends becomes one message, exactly once: the message says in its UNIQ_KEY at which
place of which file its job ended, so whoever opens the store again knows how far it had come, and
everything behind that is read again. Files that were handed over go when nothing that is still to
come needs them, after all messages from them are on disk. Must not know processes or clocks.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from beanstalkd_py.archiver.archived_position import Places
from beanstalkd_py.archiver.folder_identity import identity_of, new_identity
from beanstalkd_py.archiver.store_settings import Rules
from beanstalkd_py.binlog.done_files import HandedOver, handed_over, remove
from beanstalkd_py.binlog.layout import binlog_files
from beanstalkd_py.binlog.regular_file import NOT_REGULAR, open_regular
from beanstalkd_py.core.job_history import Fault, Lives, LivesStats
from beanstalkd_py.core.shared_memory import Place
from beanstalkd_py.errors import StoreFullError, StoreUsageError
from beanstalkd_py.history.message import UNIQ_KEY, Stored
from beanstalkd_py.history.store import Store
from beanstalkd_py.history.topics import escape
from beanstalkd_py.history.writing.upkeep import NO_ROOM

HEADER_BYTES = 4
"""Of a binlog file without an entry."""
PIECE_BYTES = 1 << 20
"""Of a binlog read at once."""
NOWHERE = Place(0, 0)
EVERYTHING = Place(2**32 - 1, 0)
"""As a safe place: all files that there are, to their ends."""
READ_TRIES = 5
"""Of what cannot be read, in a row: Lives leaves out what three readings could not get."""
RECORD_BYTES = 128 << 10
"""Of a message without its body, and more: properties have at most 32 KiB."""

SafePlace = Callable[[int], Place]
"""Up to where the folder with this index may be read: what a crash cannot take back."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A folder. `key` begins the UNIQ_KEY of its messages, `number` is what Lives calls it."""

    path: Path
    key: str
    number: int


class Archive:
    """Reads the folders and writes to the store, which stays the caller's."""

    def __init__(self, store: Store, folders: Iterable[Path], safe_place: SafePlace) -> None:
        """Finds out how far the store has come. StoreDamagedError, OSError."""
        self._store = store
        self._safe_place = safe_place
        self.archived = 0
        """Messages appended by this object."""
        self.settled_bytes = 0
        """On the disk, of the files that it has removed."""
        self._pending = b""
        self._pending_count = 0
        self._state_bytes = 0
        store.dispatch()
        self.trouble = ""
        """Why binlogs could not be read at the last turn, if so."""
        places = Places.load(store.folder)
        self.missing_bytes = max(store.recovered.missing_bytes, places.log_end - store.log.end, 0)
        """Of the store's log that had been on disk and were gone when it was opened."""
        if places.log_end > store.log.end:
            # Messages that it counts on are gone, so binlog files that are there are read again.
            # The file has to go first: it would count again once the log is as long as before.
            places = Places()
            Places.forget(store.folder)
        self._places = places
        ended = last_places(store)
        self._lives = Lives(_topic_of, most_body=most_body(store))
        try:
            if places.carried:
                self._lives.carry_in(places.carried)
            self._shards = [self._shard(path, i, ended) for i, path in enumerate(folders)]
        except BaseException:
            self._lives.close()
            raise

    def _shard(self, path: Path, index: int, ended: dict[str, Place]) -> Shard:
        places = self._places
        key = identity_of(path, index)
        last = max(ended.get(key, NOWHERE), places.read.get(key, NOWHERE))
        if last.file > max(sizes_of(path), default=0):
            # Somebody has emptied the folder, and numbers begin anew.
            key = new_identity(path, index)
        # A crash came between writing down that they may go and their going.
        remove([each for each in handed_over(path) if each.number < places.gone.get(key, 0)])
        number = self._lives.add_folder(path, key)
        archived = ended.get(key, NOWHERE)
        if key in places.read:
            read = places.read[key]
            self._lives.carried_through(number, *read)
            # Reading goes on there, so an entry that begins there is not archived yet.
            archived = max(archived, Place(read.file, read.offset - 1))
        if archived > NOWHERE:
            self._lives.archived_through(number, *archived)
        return Shard(path, key, number)

    def close(self) -> None:
        """Forgets what it has read."""
        self._lives.close()

    # --- reading --------------------------------------------------------------------------------

    def turn(self) -> bool:
        """Reads a piece of each folder and appends what has ended; whether there is more now.

        StoreFullError: the store has no room, and nothing is lost or read until there is some.
        StoreFailedError: this object is of no more use. What of binlogs cannot be read is in
        `trouble`, and is tried again by the next turns.
        """
        self._append_pending()
        more = False
        self.trouble = ""
        for index, shard in enumerate(self._shards):
            try:
                progress = self._lives.read(shard.number, *self._safe_place(index), PIECE_BYTES)
            except OSError as error:
                self.trouble = f"{shard.path}: {error}"  # Lives counts how often it has tried
                continue
            more = more or progress.more
            if progress.count:
                self._pending, self._pending_count = progress.items, progress.count
                self._append_pending()
        return more

    def finish(self) -> None:
        """Reads all that may be read, and settles. As `turn`; OSError if it cannot be read."""
        tries = 0
        while self.turn() or self.trouble:
            tries = tries + 1 if self.trouble else 0
            if tries > READ_TRIES:
                raise OSError(f"cannot read a binlog: {self.trouble}")
        self.settle()

    def _append_pending(self) -> None:
        if self._pending_count:
            self._store.append(self._pending)
            self.archived += self._pending_count
            self._pending, self._pending_count = b"", 0

    def forget_lost(self) -> None:
        """Drops open jobs that ended while nobody archived: no folder has them.

        To be called when all that may be read has been.
        """
        self._lives.drop_unseen()

    def has_all(self) -> bool:
        """Whether a server has read all of these folders, so that what it has can be read here."""
        return all(self._safe_place(index).file > 0 for index in range(len(self._shards)))

    def faults(self) -> list[str]:
        """What could not be believed in binlogs since the last call: `path:offset: what`."""
        by_number = {shard.number: shard.path for shard in self._shards}
        return [_told(by_number[fault.folder], fault) for fault in self._lives.faults()]

    @property
    def lives(self) -> LivesStats:
        """How many jobs are open, and the like."""
        return self._lives.stats

    def behind(self) -> int:
        """Bytes of binlog files that may be read and have not been yet. OSError."""
        return sum(self._behind(index, shard) for index, shard in enumerate(self._shards))

    def _behind(self, index: int, shard: Shard) -> int:
        file, offset = self._lives.place(shard.number)
        safe_file, safe_end = self._safe_place(index)
        safe_end -= HEADER_BYTES if safe_end == HEADER_BYTES else 0
        if file == safe_file:
            return max(0, safe_end - offset)
        sizes = sizes_of(shard.path)
        ahead = sum(size for number, size in sizes.items() if file <= number < safe_file)
        return max(0, ahead - offset) + (safe_end if safe_file in sizes else 0)

    # --- letting files go -----------------------------------------------------------------------

    def settle(self, thorough: bool = True) -> bool:
        """Puts all that is archived on disk and removes files that no longer are of any use.

        Not `thorough`: only if that frees more than it has to write. Whether it was done. OSError,
        StoreFailedError. StoreFullError: there is no room to write down what must be known.
        """
        self._store.check_files()
        if self._pending_count:
            return False
        useless = {shard.key: self._useless(shard) for shard in self._shards}
        freed = sum(each.size for files in useless.values() for each in files)
        if not thorough and freed <= self._state_bytes:
            return False
        self._store.flush()
        # Of other folders what was known stays: they may be back.
        places = self._places
        places.carried = self._lives.carry_out()
        places.log_end = self._store.log.end
        for shard in self._shards:
            places.read[shard.key] = Place(*self._lives.place(shard.number))
            places.gone[shard.key] = self._lives.needed_from(shard.number)
        try:
            self._state_bytes = places.save(self._store.folder)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            text = f"{self._store.folder}: no room to write down how far it is: {error}"
            raise StoreFullError(text) from error
        for files in useless.values():
            remove(files)
        self.settled_bytes += freed
        return True

    def useless_bytes(self) -> int:
        """On the disk, of the files that `settle` would let go. OSError."""
        return sum(each.size for shard in self._shards for each in self._useless(shard))

    def _useless(self, shard: Shard) -> list[HandedOver]:
        needed = self._lives.needed_from(shard.number)
        return [each for each in handed_over(shard.path) if each.number < needed]


def last_places(store: Store) -> dict[str, Place]:
    """Where the last job of each folder ended that the store knows of, by the folder's key.

    A tube is in one folder, so the last message of each topic is enough.
    """
    places: dict[str, Place] = {}
    for queue in store.queues:
        begin, end = store.bounds(queue.topic, queue.queue_id)
        unit = queue.unit(end - 1) if end > begin else None
        message = store.message(unit.offset) if unit is not None else None
        parsed = message and place_of(message)
        if parsed:
            key, place = parsed
            places[key] = max(place, places.get(key, place))
    return places


def place_of(message: Stored) -> tuple[str, Place] | None:
    """The key of the folder and the place in it where the job of a message ended.

    None: it is no message of an archiver.
    """
    match message.properties.get(UNIQ_KEY, "").rsplit("-", 2):
        case [key, file, offset] if file.isdecimal() and offset.isdecimal():
            return key, Place(int(file), int(offset))
    return None


def sizes_of(folder: Path) -> dict[int, int]:
    """Bytes of each binlog file of a folder, by number; those handed over, too. OSError."""
    sizes = {each.number: each.size for each in handed_over(folder)}
    for path in binlog_files(folder):
        with contextlib.suppress(FileNotFoundError):
            sizes[int(path.suffix[1:])] = path.stat().st_size
    return sizes


def most_body(store: Store) -> int:
    """Bytes of the largest body that a message of this store can have. StoreUsageError: none."""
    room = store.sizes.segment_bytes - RECORD_BYTES
    if room < 0:
        raise StoreUsageError(
            f"{store.folder} has log files of {store.sizes.segment_bytes} bytes, too small for"
            " timelines of jobs; give another folder"
        )
    return min(store.options.max_body_bytes, room)


def _topic_of(tube: bytes) -> bytes:
    return escape(tube.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _told(folder: Path, fault: Fault) -> str:
    return f"{folder}/binlog.{fault.file}:{fault.offset}: {fault.what}"


def sync_files(folder: Path) -> None:
    """A server that was killed may have left what is in its files and not on disk. OSError."""
    for path in binlog_files(folder):
        try:
            fd = open_regular(path, os.O_RDONLY)
        except OSError as error:
            if error.errno == NOT_REGULAR:
                continue  # whoever reads it complains of it
            raise
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)


def what_was_lost(store: Store, archive: Archive) -> list[str]:
    """A sentence for everything that was missing when the store was opened, or was cut off."""
    recovered = store.recovered
    told = []
    cut_bytes = 0
    if recovered.set_aside is not None:
        cut_bytes = recovered.set_aside.stat().st_size
        why = recovered.fault or "nothing was written"
        told.append(
            f"the history ends at offset {recovered.log_end}, where {why}; what was behind is in"
            f" {recovered.set_aside} now, and jobs of which only that told are missing from the"
            " history"
        )
    if archive.missing_bytes > cut_bytes:
        told.append(
            f"{store.log.segments.folder} ends at offset {recovered.log_end}, but"
            f" {archive.missing_bytes} more bytes were on disk: files of the log are missing; jobs"
            " that ended there are archived again if the binlog still has them"
        )
    if recovered.remade:
        told.append(f"{store.folder} lacked a part of its {recovered.remade}; all are made again")
    return told


def archive_rest(rules: Rules, folders: Iterable[Path], tell: Callable[[str], None]) -> int:
    """Archives all that has ended in folders on which no server runs; how many jobs.

    `tell` gets what an operator has to know of the store. StoreError, OSError.
    """
    folders = list(folders)
    for folder in folders:
        sync_files(folder)
    with Store.open(rules.folder, rules.options(background=False)) as store:
        archive = Archive(store, folders, lambda index: EVERYTHING)
        try:
            for text in what_was_lost(store, archive):
                tell(text)
            archive.finish()
            return archive.archived
        finally:
            archive.close()
