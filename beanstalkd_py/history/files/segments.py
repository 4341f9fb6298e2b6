"""A sequence of files of one size, each named by the offset of its first byte.

The commit log is such a sequence, and so is each consume queue. A file is allocated completely when
it is created, so only the creation can run out of disk space.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from beanstalkd_py import symlinks
from beanstalkd_py.errors import StoreDamagedError
from beanstalkd_py.history.files import layout
from beanstalkd_py.history.files.open_files import Descriptors, write_all

PIECE = 1 << 20


class Segments:
    """One sequence of files. Offsets and sizes are bytes. Methods raise OSError."""

    def __init__(
        self, folder: Path, size: int, descriptors: Descriptors, sparse: bool = False
    ) -> None:
        self.folder = folder
        self.size = size
        self._sparse = sparse
        self.starts: list[int] = layout.segment_starts(folder)
        self._descriptors = descriptors
        self._dirty: set[int] = set()
        self._folder_is_dirty = False
        self._lock = threading.Lock()

    @property
    def begin(self) -> int:
        """The offset of the first file, 0 without files."""
        return self.starts[0] if self.starts else 0

    @property
    def end(self) -> int:
        """The offset behind the last file, 0 without files."""
        return self.starts[-1] + self.size if self.starts else 0

    def path(self, start: int) -> Path:
        return self.folder / layout.segment_name(start)

    def location(self, offset: int) -> str:
        """Return `folder/file:offset` for messages."""
        start = self.start_of(offset)
        return f"{self.path(start)}:{offset - start}"

    def start_of(self, offset: int) -> int:
        """Return the start of the file that has or would have the offset."""
        return offset - offset % self.size

    def first_gap(self) -> int | None:
        """Return the first offset without a file that precedes another file, or None."""
        for before, start in zip(self.starts, self.starts[1:], strict=False):
            if start != before + self.size:
                return before + self.size
        return None

    def first_short(self, begin: int) -> int | None:
        """Return the end of the first file from `begin` on that is too short; not of the last."""
        for start in self.starts[:-1]:
            if start >= begin and self.path(start).stat().st_size < self.size:
                return start + self.size
        return None

    def missing(self) -> Path | None:
        """Return a file that another program has removed, or None."""
        gone = set(self.starts) - set(layout.segment_starts(self.folder))
        return self.path(min(gone)) if gone else None

    def remove_from(self, offset: int) -> None:
        """Remove all files that begin at an offset or later, the last one first."""
        for start in [each for each in reversed(self.starts) if each >= offset]:
            self.remove(start)

    def check(self, repair: bool) -> None:
        """Raise StoreDamagedError if a file is missing in between or has another size.

        With `repair`, a last file that a crash left too short is extended.
        """
        if (gap := self.first_gap()) is not None:
            start = next(each for each in self.starts if each > gap)
            raise StoreDamagedError(f"{self.path(start)}: no file before it ends at {start}")
        for start in self.starts:
            length = self.path(start).stat().st_size
            is_repairable = repair and length < self.size and start == self.starts[-1]
            if start % self.size or (length != self.size and not is_repairable):
                raise StoreDamagedError(f"{self.path(start)}: {length} bytes, not {self.size}")
            if length < self.size:
                self._allocate(start)

    def create(self, start: int) -> None:
        """Create the next file, filled with zeros. Nothing remains of it if the disk is full."""
        layout.make_folder(self.folder)
        try:
            self._allocate(start, os.O_TRUNC)
        except OSError:
            self._descriptors.forget(self.path(start))
            symlinks.remove(self.path(start), missing_ok=True)
            raise
        with self._lock:
            self._folder_is_dirty = True
            self._dirty.add(start)
        self.starts.append(start)

    def _allocate(self, start: int, flags: int = 0) -> None:
        fd = layout.open_to_write(self.path(start), flags)
        try:
            if self._sparse:
                os.ftruncate(fd, self.size)
            else:
                os.posix_fallocate(fd, 0, self.size)
        finally:
            os.close(fd)

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write into one existing file."""
        start = self.start_of(offset)
        assert offset - start + len(data) <= self.size
        with self._descriptors.borrow(self.path(start)) as fd:
            write_all(fd, data, offset - start)
        with self._lock:
            self._dirty.add(start)

    def read(self, offset: int, length: int) -> bytes:
        """Read at most `length` bytes of one file; empty if there is no file."""
        start = self.start_of(offset)
        try:
            with self._descriptors.borrow(self.path(start)) as fd:
                return os.pread(fd, min(length, start + self.size - offset), offset - start)
        except FileNotFoundError:
            return b""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Read from one existing file into a buffer and return the number of bytes."""
        start = self.start_of(offset)
        with self._descriptors.borrow(self.path(start)) as fd:
            return os.preadv(fd, [buffer[: start + self.size - offset]], offset - start)

    def sync(self) -> None:
        """Sync everything written before the call."""
        with self._lock:
            dirty, self._dirty = sorted(self._dirty), set()
            folder_is_dirty, self._folder_is_dirty = self._folder_is_dirty, False
        for start in dirty:
            with (
                contextlib.suppress(FileNotFoundError),  # removed meanwhile
                self._descriptors.borrow(self.path(start)) as fd,
            ):
                os.fdatasync(fd)
        if folder_is_dirty:
            symlinks.sync_folder(self.folder)

    def sync_again(self, rewrite_from: int) -> None:
        """Sync every file, including those of earlier processes.

        Data behind `rewrite_from` are first written again: a process that was killed after a failed
        sync may have left dirty pages that the kernel takes for written.
        """
        for start in self.starts:
            with self._descriptors.borrow(self.path(start)) as fd:
                at = max(rewrite_from - start, 0)
                while (data := _first_data(fd, at, self.size)) is not None:
                    at = data - data % PIECE
                    piece = os.pread(fd, PIECE, at)
                    write_all(fd, piece, at)
                    at += len(piece)
                os.fdatasync(fd)
        if self.starts:
            symlinks.sync_folder(self.folder)

    def cut(self, end: int) -> bool:
        """Zero everything from `end` on and remove later files. Return whether anything changed."""
        count = len(self.starts)
        self.remove_from(self.start_of(end) + self.size)
        changed = len(self.starts) < count
        if not self.starts or end >= self.end:
            return changed
        start = self.starts[-1]
        with self._descriptors.borrow(self.path(start)) as fd:
            data = _first_data(fd, max(end - start, 0), self.size)
            if data is None:
                return changed
            # The file is too short until the next line; after a crash here, `check` repairs it.
            os.ftruncate(fd, data)
            os.posix_fallocate(fd, 0, self.size)
            os.fsync(fd)
        return True

    def first_data(self, begin: int) -> int | None:
        """Return the offset of the first non-zero byte from an offset on, or None."""
        for start in self.starts:
            if start + self.size > begin:
                with self._descriptors.borrow(self.path(start)) as fd:
                    at = _first_data(fd, max(begin - start, 0), self.size)
                if at is not None:
                    return start + at
        return None

    def remove(self, start: int) -> None:
        """Remove one file durably: after a power cut no other one may be missing before it."""
        self._unlink(start)
        symlinks.sync_folder(self.folder)

    def remove_all(self) -> None:
        """Remove all files; the next `sync` syncs their folder."""
        for start in list(self.starts):
            self._unlink(start)
        with self._lock:
            self._folder_is_dirty = True

    def _unlink(self, start: int) -> None:
        self._descriptors.forget(self.path(start))
        symlinks.remove(self.path(start))
        self.starts.remove(start)
        with self._lock:
            self._dirty.discard(start)

    def refresh(self) -> None:
        """List the files again, because another process writes here."""
        self.starts = layout.segment_starts(self.folder)


def _first_data(fd: int, begin: int, end: int) -> int | None:
    """Return the position of the first non-zero byte in begin..end; holes are not read."""
    at = begin
    while at < end:
        try:
            at = max(at, os.lseek(fd, at, os.SEEK_DATA))
        except OSError:
            return None  # ENXIO: only holes follow
        piece = os.pread(fd, min(PIECE, end - at), at)
        if not piece:
            return None
        if piece.strip(b"\0"):
            return at + len(piece) - len(piece.lstrip(b"\0"))
        at += len(piece)
    return None
