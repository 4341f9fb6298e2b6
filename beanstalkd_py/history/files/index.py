"""The index: messages by topic and key, in files of a fixed number of entries.

What is inside a file is for csrc/store/index.c to say; here are the files. An index finds by hash
alone, so who asks has to look at the messages. It must not know the log.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from beanstalkd_py import symlinks
from beanstalkd_py.errors import StoreDamagedError
from beanstalkd_py.history._store import ffi, lib
from beanstalkd_py.history.files import layout
from beanstalkd_py.history.message import key_hash
from beanstalkd_py.history.options import Sizes

FOUND_AT_ONCE = 256
SECOND_MS = 1000


class IndexFile:
    """One file, mapped as a whole: it was allocated as a whole, so that no write can fail later."""

    def __init__(self, path: Path, sizes: Sizes, writable: bool) -> None:
        self.path = path
        self.slots, self.entries = sizes.index_slots, sizes.index_entries
        self._header = ffi.new("hs_index_header *")
        bytes_wanted = lib.hs_index_bytes(self.slots, self.entries)
        if writable:
            fd = symlinks.open_file(path, os.O_RDWR)
        else:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_size != bytes_wanted:
                size = os.fstat(fd).st_size
                raise StoreDamagedError(f"{path}: {size} bytes, not {bytes_wanted}")
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            self._map = mmap.mmap(fd, bytes_wanted, access=access)
        finally:
            os.close(fd)
        self.memory = ffi.from_buffer("char[]", self._map)

    @classmethod
    def create(cls, path: Path, sizes: Sizes) -> IndexFile:
        """A new file without entries. OSError; then there is no such file."""
        size = lib.hs_index_bytes(sizes.index_slots, sizes.index_entries)
        staged = path.with_name(path.name + ".new")
        fd = layout.open_to_write(staged, os.O_TRUNC)
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError:
            symlinks.remove(staged)
            raise
        finally:
            os.close(fd)
        symlinks.rename(staged, path)
        layout.sync_folder(path.parent)
        return cls(path, sizes, writable=True)

    @property
    def header(self) -> Any:
        """`hs_index_header`, as it is now."""
        header = ffi.new("hs_index_header *")
        lib.hs_index_read_header(self.memory, header)
        return header

    @property
    def raw_header(self) -> bytes:
        """The first 40 bytes."""
        return bytes(ffi.buffer(self.memory, lib.HS_INDEX_HEADER))

    @property
    def is_full(self) -> bool:
        """No entry fits any more."""
        return bool(self.header.next_entry >= self.entries)

    def continue_from(self, before: IndexFile) -> None:
        """Until it has an entry of its own, the file begins where the one before it ends."""
        header, last = self.header, before.header
        header.begin_timestamp = header.end_timestamp = last.end_timestamp
        header.begin_offset = header.end_offset = last.end_offset
        header.next_entry = 0
        lib.hs_index_write_header(self.memory, header)

    def put(self, keys: Any, count: int) -> int:
        """Enters keys; returns how many fitted."""
        return lib.hs_index_put(self.memory, self.slots, self.entries, keys, count)

    def rewind(self, raw_header: bytes) -> None:
        """Takes it back to an earlier header. StoreDamagedError if that cannot be."""
        header = ffi.new("hs_index_header *")
        with ffi.from_buffer("char[]", raw_header) as said:
            lib.hs_index_read_header(said, header)
        if lib.hs_index_rewind(self.memory, self.slots, self.entries, header) < 0:
            raise StoreDamagedError(f"{self.path}: its entries are not those it had")

    def may_have(self, begin: int, end: int) -> bool:
        """Whether an entry can be of a time in begin..end."""
        header = self.header
        return bool(
            header.next_entry > 1
            and header.begin_timestamp <= end
            and begin <= header.end_timestamp
        )

    def find(self, code: int, begin: int, end: int, cursor: int) -> tuple[list[int], int]:
        """Offsets of messages with this hash, newest first, of times that may be in begin..end.

        `cursor` is 0 at first. Returns some offsets, and the cursor to go on with: -1 at the end.
        """
        offsets = ffi.new("int64_t[]", FOUND_AT_ONCE)
        place = ffi.new("int32_t *", cursor)
        sizes = (self.slots, self.entries)
        begin -= SECOND_MS  # times in a file are whole seconds
        found = lib.hs_index_find(
            self.memory, *sizes, code, begin, end, offsets, FOUND_AT_ONCE, place
        )
        if found < 0:
            raise StoreDamagedError(f"{self.path}: entries lead to where none is")
        return list(ffi.unpack(offsets, found)), int(place[0])

    def sync(self) -> None:
        """Everything in it is on disk afterwards. OSError."""
        self._map.flush()

    def close(self) -> None:
        """Unmaps it."""
        ffi.release(self.memory)
        self._map.close()


class Index:
    """All index files of a store. Methods raise OSError."""

    def __init__(self, store: Path, sizes: Sizes) -> None:
        self.folder = store / layout.INDEX
        self._sizes = sizes
        self._lock = threading.Lock()
        self.files: list[IndexFile] = []
        self.unreadable: dict[Path, str] = {}
        """Files that `load_readable` left out, with what is wrong."""
        self._dirty: list[IndexFile] = []

    def load(self) -> None:
        """Maps the files there are, for writing. StoreDamagedError if one has another size."""
        for staged in self.folder.glob("*.new"):
            symlinks.remove(staged)
        self.files = []
        for name in layout.index_names(self.folder):
            self.files.append(IndexFile(self.folder / name, self._sizes, writable=True))

    def load_readable(self) -> None:
        """As `load`, but leaves out files of another size."""
        self.files, self.unreadable = [], {}
        for name in layout.index_names(self.folder):
            path = self.folder / name
            try:
                self.files.append(IndexFile(path, self._sizes, writable=False))
            except FileNotFoundError:
                continue  # its writer has just removed it
            except StoreDamagedError as error:
                self.unreadable[path] = str(error).removeprefix(f"{path}: ")

    def missing(self) -> Path | None:
        """A file that was there and is not any more."""
        with self._lock:
            there = set(layout.index_names(self.folder))
            return next((each.path for each in self.files if each.path.name not in there), None)

    @property
    def last(self) -> IndexFile | None:
        """The file that is being filled."""
        return self.files[-1] if self.files else None

    def put(self, keys: Any, count: int) -> int:
        """Enters keys into the last file, or into a new one if that is full.

        Returns how many fitted, at least one. OSError: none.
        """
        with self._lock:
            target = self.last
            if target is None or target.is_full:
                target = self._extend(target)
            if target not in self._dirty:
                self._dirty.append(target)
            return target.put(keys, count)

    def _extend(self, before: IndexFile | None) -> IndexFile:
        layout.make_folder(self.folder)
        made = IndexFile.create(self.folder / self._next_name(before), self._sizes)
        if before is not None:
            made.continue_from(before)
        self.files.append(made)
        return made

    @staticmethod
    def _next_name(before: IndexFile | None) -> str:
        """The local time to milliseconds, but always later than the last: names are the order."""
        now = time.time()
        name = time.strftime("%Y%m%d%H%M%S", time.localtime(now)) + f"{int(now * 1000) % 1000:03d}"
        if before is not None and name <= before.path.name:
            name = f"{int(before.path.name) + 1:017d}"
        return name

    def offsets(self, topic: str, key: str, begin: int, end: int) -> Iterator[int]:
        """Where messages with the key may be, newest first."""
        code = key_hash(topic, key)
        with self._lock:
            files = self.files[::-1]
        for file in files:
            cursor = 0
            while cursor >= 0:
                with self._lock:
                    if file not in self.files or not file.may_have(begin, end):
                        break
                    found, cursor = file.find(code, begin, end, cursor)
                yield from found

    def sync(self) -> None:
        """All entries that were made before the call are on disk afterwards."""
        with self._lock:
            dirty, self._dirty = self._dirty, []
        for file in dirty:
            file.sync()

    def remove(self, file: IndexFile) -> None:
        """Removes one file."""
        with self._lock:
            self.files.remove(file)
            if file in self._dirty:
                self._dirty.remove(file)
            file.close()
            symlinks.remove(file.path)
        layout.sync_folder(self.folder)

    def discard(self) -> None:
        """Removes all files, also those that cannot be read."""
        self.close()
        for name in layout.index_names(self.folder):
            symlinks.remove(self.folder / name)
        if self.folder.is_dir():
            layout.sync_folder(self.folder)

    def close(self) -> None:
        """Unmaps all."""
        with self._lock:
            for file in self.files:
                file.close()
            self.files = []
            self._dirty = []
