"""The index: finds messages by topic and key, in files with a fixed number of entries.

csrc/store/index.c defines the contents of a file. The index only compares hashes, so the caller
checks the messages it finds.
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
from beanstalkd_py.history.files.open_files import open_existing
from beanstalkd_py.history.message import key_hash
from beanstalkd_py.history.options import Sizes

OFFSETS_AT_ONCE = 256
SECOND_MS = 1000


class IndexFile:
    """One mapped file. It is allocated as a whole, so no later write can run out of space."""

    def __init__(self, path: Path, sizes: Sizes, writable: bool) -> None:
        self.path = path
        self.slots, self.entries = sizes.index_slots, sizes.index_entries
        expected_size = lib.hs_index_bytes(self.slots, self.entries)
        fd = open_existing(path, writable)
        try:
            if (size := os.fstat(fd).st_size) != expected_size:
                raise StoreDamagedError(f"{path}: {size} bytes, not {expected_size}")
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            self._map = mmap.mmap(fd, expected_size, access=access)
        finally:
            os.close(fd)
        self.memory = ffi.from_buffer("char[]", self._map)

    @classmethod
    def create(cls, path: Path, sizes: Sizes) -> IndexFile:
        """Create an empty file. After OSError there is none."""
        size = lib.hs_index_bytes(sizes.index_slots, sizes.index_entries)
        staged = path.with_name(path.name + ".new")
        fd = symlinks.create_file(staged, 0o644)
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError:
            symlinks.remove(staged)
            raise
        finally:
            os.close(fd)
        symlinks.rename(staged, path)
        symlinks.sync_folder(path.parent)
        return cls(path, sizes, writable=True)

    @property
    def header(self) -> Any:
        header = ffi.new("hs_index_header *")
        lib.hs_index_read_header(self.memory, header)
        return header

    @property
    def raw_header(self) -> bytes:
        return bytes(ffi.buffer(self.memory, lib.HS_INDEX_HEADER))

    @property
    def is_full(self) -> bool:
        return bool(self.header.next_entry >= self.entries)

    def continue_from(self, before: IndexFile) -> None:
        """Set the time and offset range of an empty file to the end of the previous file."""
        header, last = self.header, before.header
        header.begin_timestamp = header.end_timestamp = last.end_timestamp
        header.begin_offset = header.end_offset = last.end_offset
        header.next_entry = 0
        lib.hs_index_write_header(self.memory, header)

    def put(self, keys: Any, count: int) -> int:
        """Add keys; return how many fitted."""
        return lib.hs_index_put(self.memory, self.slots, self.entries, keys, count)

    def rewind(self, raw_header: bytes) -> None:
        """Restore an earlier header. Raises StoreDamagedError if the entries do not match it."""
        header = ffi.new("hs_index_header *")
        with ffi.from_buffer("char[]", raw_header) as bytes_:
            lib.hs_index_read_header(bytes_, header)
        if lib.hs_index_rewind(self.memory, self.slots, self.entries, header) < 0:
            raise StoreDamagedError(f"{self.path}: its entries do not match the recorded header")

    def may_have(self, begin: int, end: int) -> bool:
        """Return whether an entry can have a time in begin..end."""
        header = self.header
        is_empty = header.next_entry <= 1
        return not is_empty and header.begin_timestamp <= end and begin <= header.end_timestamp

    def find(self, code: int, begin: int, end: int, cursor: int) -> tuple[list[int], int]:
        """Return some offsets of messages that may have this hash and a time in begin..end.

        The newest is first. `cursor` is 0 in the first call. Returns the next cursor too, -1 at the
        end.
        """
        offsets = ffi.new("int64_t[]", OFFSETS_AT_ONCE)
        next_cursor = ffi.new("int32_t *", cursor)
        times = (begin - SECOND_MS, end)  # files store whole seconds
        count = lib.hs_index_find(
            *(self.memory, self.slots, self.entries),
            *(code, *times, offsets, OFFSETS_AT_ONCE, next_cursor),
        )
        if count < 0:
            raise StoreDamagedError(f"{self.path}: an entry refers to one that does not exist")
        return list(ffi.unpack(offsets, count)), int(next_cursor[0])

    def sync(self) -> None:
        self._map.flush()

    def close(self) -> None:
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
        """Files that `load_readable` skipped, with the reason."""
        self._dirty: list[IndexFile] = []

    def load(self) -> None:
        """Map all files for writing. Raises StoreDamagedError if one has another size."""
        for staged in self.folder.glob("*.new"):
            symlinks.remove(staged)
        self.files = []
        for name in layout.index_names(self.folder):
            self.files.append(IndexFile(self.folder / name, self._sizes, writable=True))

    def load_readable(self) -> None:
        """Map all files for reading; skip files of another size."""
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
        """Return a file that another program has removed, or None."""
        with self._lock:
            names = set(layout.index_names(self.folder))
            return next((file.path for file in self.files if file.path.name not in names), None)

    @property
    def last(self) -> IndexFile | None:
        return self.files[-1] if self.files else None

    def put(self, keys: Any, count: int) -> int:
        """Add keys to the last file, or to a new one if that is full.

        Returns how many fitted, at least one. After OSError none were added.
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
        file = IndexFile.create(self.folder / self._next_name(before), self._sizes)
        if before is not None:
            file.continue_from(before)
        self.files.append(file)
        return file

    @staticmethod
    def _next_name(before: IndexFile | None) -> str:
        """Return the local time in milliseconds, increased to be above the last name."""
        now = time.time()
        name = time.strftime("%Y%m%d%H%M%S", time.localtime(now)) + f"{int(now * 1000) % 1000:03d}"
        if before is not None and name <= before.path.name:
            name = f"{int(before.path.name) + 1:017d}"
        return name

    def offsets(self, topic: str, key: str, begin: int, end: int) -> Iterator[int]:
        """Yield the offsets of messages that may have the key, newest first."""
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
        """Sync all entries added before the call."""
        with self._lock:
            dirty, self._dirty = self._dirty, []
        for file in dirty:
            file.sync()

    def remove(self, file: IndexFile) -> None:
        with self._lock:
            self.files.remove(file)
            if file in self._dirty:
                self._dirty.remove(file)
            file.close()
            symlinks.remove(file.path)
        symlinks.sync_folder(self.folder)

    def discard(self) -> None:
        """Remove all files, also unreadable ones."""
        self.close()
        for name in layout.index_names(self.folder):
            symlinks.remove(self.folder / name)
        if self.folder.is_dir():
            symlinks.sync_folder(self.folder)

    def close(self) -> None:
        with self._lock:
            for file in self.files:
                file.close()
            self.files = []
            self._dirty = []
