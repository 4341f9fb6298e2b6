"""The copy of a stream in a binlog folder.

The stream rules: whatever else is in the folder is overwritten or cut. `replica.json` records how
much of each stream the files contain, after these are on disk. A copy whose files are not as
recorded begins again at the start of its stream, which always has a complete state.

    R1  The files are the bytes of the stream from the start of its first file to `position`.
        Beyond that there may be bytes of this server that never reached the stream, until `cut`.
    R2  `sync` returns a state whose bytes are on disk.
    R3  A file is removed only when a later piece says that the primary has removed it, or when the
        stream no longer has it.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from beanstalkd_py import symlinks
from beanstalkd_py.binlog.done_files import DONE_SUFFIX
from beanstalkd_py.binlog.layout import binlog_files, number_of
from beanstalkd_py.core.shared_memory import BinlogPosition
from beanstalkd_py.replication.piece import Piece, PieceError

PIECE_BYTES = 1 << 20


@dataclass(slots=True)
class StreamFile:
    """A binlog file in a stream: the message that begins it, and size and CRC-32 so far."""

    sequence: int
    size: int = 0
    crc32: int = 0


@dataclass(slots=True)
class CopyState:
    """How much of a stream a copy has. `files` are those of the stream, by number, in order.

    `sequence` is the last message, 0 for none; `epoch` the highest of any message.
    """

    sequence: int = 0
    epoch: int = 0
    files: OrderedDict[int, StreamFile] = field(default_factory=OrderedDict)
    """The type is for its quick removal of first items; a folder may have thousands of files."""

    @property
    def position(self) -> BinlogPosition:
        """The end of the bytes; (0, 0) without any."""
        number = next(reversed(self.files), 0)
        return BinlogPosition(number, self.files[number].size if number else 0)

    def add(self, piece: Piece, sequence: int) -> None:
        """Count a message. Raises PieceError if it does not continue the last one."""
        position = self.position
        begins = piece.file > position.file and piece.offset == 0
        if piece.begin != position and not begins:
            raise PieceError(
                f"message {sequence} has bytes at {piece.begin}, but those before it end at"
                f" {position}"
            )
        if piece.epoch < self.epoch:
            raise PieceError(
                f"message {sequence} is of epoch {piece.epoch}, after one of epoch {self.epoch}"
            )
        self.sequence, self.epoch = sequence, piece.epoch
        if begins and piece.data:
            self.files[piece.file] = StreamFile(sequence)
        if piece.data:
            file = self.files[piece.file]
            file.size += len(piece.data)
            file.crc32 = zlib.crc32(piece.data, file.crc32)
        self.drop_before(piece.first)

    def drop_before(self, first: int) -> None:
        """Forget files below this number, but not the last one."""
        while len(self.files) > 1 and next(iter(self.files)) < first:
            self.files.popitem(last=False)

    def copy(self) -> CopyState:
        """Return a copy, quickly also of thousands of files: only the last one changes."""
        files = self.files.copy()
        if files:
            last = next(reversed(files))
            files[last] = replace(files[last])
        return CopyState(self.sequence, self.epoch, files)

    def encode(self) -> dict[str, Any]:
        files = {
            str(number): [one.sequence, one.size, one.crc32] for number, one in self.files.items()
        }
        return {"sequence": self.sequence, "epoch": self.epoch, "files": files}

    @classmethod
    def decode(cls, values: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError for other values."""
        files = {int(number): StreamFile(*map(int, one)) for number, one in values["files"].items()}
        in_order = OrderedDict(sorted(files.items()))
        return cls(int(values["sequence"]), int(values["epoch"]), in_order)


def bytes_between(folder: Path, begin: BinlogPosition, end: BinlogPosition) -> int:
    """Return how many bytes of the files are between two positions; removed files have none."""
    if begin >= end:
        return 0
    if begin.file == end.file:
        return end.offset - begin.offset
    size = end.offset
    for path in binlog_files(folder):
        number = number_of(path)
        if begin.file <= number < end.file:
            with contextlib.suppress(FileNotFoundError):
                size += path.stat().st_size - (begin.offset if number == begin.file else 0)
    return size


class FolderCopy:
    """Writes a stream's bytes into the files of `folder`. All methods raise OSError.

    With `keeps_done`, files that the primary has removed become done files, for an archiver. Files
    that this server wrote as a primary and that never reached the stream do not.
    """

    def __init__(self, folder: Path, state: CopyState, keeps_done: bool = False) -> None:
        self.folder = folder
        self._keeps_done = keeps_done
        self.state = state
        self._fd = -1
        self._open_number = 0
        self._first = 0
        """Files below this number are removed."""
        self._end = state.position
        """How far the files have bytes of the stream; `begin_again` does not change it."""
        self.is_fresh = state.sequence == 0
        """Whether all of it was read from the stream by this process."""
        self._unsynced: set[int] = set()
        """Numbers of files; 0 is the folder."""

    def apply(self, piece: Piece, sequence: int) -> None:
        """Write the bytes of a message. Raises PieceError if it does not continue the last.

        A jump of the sequence means that the stream no longer has the messages in between: files
        below the first one there are gone, too (R3).
        """
        before = self.state.position
        if sequence != self.state.sequence + 1:
            if piece.offset != 0:
                raise PieceError(
                    f"message {sequence} follows message {self.state.sequence}, but begins no file"
                )
            self.state.files.clear()
        self.state.add(piece, sequence)
        if piece.data:
            if piece.file != before.file:
                self._end_file(before)
            if 0 < self._end.file < piece.file - 1:
                self._remove_between(self._end, piece.file)
        first = next(iter(self.state.files), piece.first)
        if first != self._first:  # before the write, which may need the space
            self._remove_before(first)
            self._first = first
        if piece.data:
            self._write(piece)
            self._end = max(self._end, self.state.position)

    def _write(self, piece: Piece) -> None:
        if self._open_number != piece.file:
            self._close()
            flags = os.O_WRONLY | os.O_CREAT
            self._fd = symlinks.open_file(self.folder / f"binlog.{piece.file}", flags)
            self._open_number = piece.file
        done = 0
        while done < len(piece.data):
            try:
                done += os.pwrite(self._fd, piece.data[done:], piece.offset + done)
            except OSError as error:
                error.filename = os.fspath(self.folder / f"binlog.{piece.file}")
                raise
        self._unsynced.add(piece.file)

    def _end_file(self, end: BinlogPosition) -> None:
        """Cut what a file has beyond its bytes of the stream."""
        path = self.folder / f"binlog.{end.file}"
        if end.file and path.exists() and path.stat().st_size > end.offset:
            os.truncate(path, end.offset)
            self._unsynced.add(end.file)

    def _remove_between(self, end: BinlogPosition, number: int) -> None:
        """Remove what follows `end`, up to a file: the stream does not have it."""
        self._end_file(end)
        for path in binlog_files(self.folder):
            if end.file < number_of(path) < number:
                symlinks.remove(path, missing_ok=True)
                self._unsynced.add(0)

    def _remove_before(self, first: int) -> None:
        """Remove files whose jobs are in later ones, which are synced before."""
        removed = [path for path in binlog_files(self.folder) if number_of(path) < first]
        if removed:
            self.sync()
        for path in removed:
            self._remove(path)

    def _remove(self, path: Path) -> None:
        """Remove a file of the stream that the primary has removed."""
        if self._keeps_done:
            symlinks.rename(path, path.with_name(f"{path.name}{DONE_SUFFIX}"))
        else:
            symlinks.remove(path, missing_ok=True)
        self._unsynced.add(0)

    def sync(self) -> CopyState:
        """Sync all files and the folder; return the state that is on disk now (R2)."""
        if not self._unsynced:
            return self.state
        for number in sorted(self._unsynced - {0}):
            for name in (f"binlog.{number}", f"binlog.{number}{DONE_SUFFIX}"):
                with contextlib.suppress(FileNotFoundError):
                    fd = symlinks.open_file(self.folder / name, os.O_WRONLY)
                    try:
                        os.fsync(fd)
                    finally:
                        os.close(fd)
        self._unsynced.clear()
        with symlinks.opened(self.folder) as fd:
            os.fsync(fd)
        return self.state

    def short_files(self) -> list[Path]:
        """Return the files that do not have all bytes of the stream, by their sizes."""
        return [path for path, one in self._paths() if not _has_size(path, one)]

    def damaged_files(self) -> list[Path]:
        """Return the files that do not begin with the bytes of the stream. Reads all of them."""
        return [path for path, one in self._paths() if not _has_bytes(path, one)]

    def _paths(self) -> list[tuple[Path, StreamFile]]:
        files = self.state.files.items()
        return [(self.folder / f"binlog.{number}", one) for number, one in files]

    def begin_again(self) -> None:
        """Forget what the copy has; the stream has a complete state."""
        self._close()
        self.state = CopyState()
        self.is_fresh = True
        self._first = 0

    def cut(self) -> None:
        """Remove everything that is not in the stream: ends of files, and other binlog files."""
        self._close()
        self._end_file(self.state.position)
        first = next(iter(self.state.files), 0)
        for path in binlog_files(self.folder):
            number = number_of(path)
            if number < first:
                self._remove(path)
            elif number not in self.state.files:
                symlinks.remove(path)
                self._unsynced.add(0)
        self.sync()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._open_number = -1, 0


def _has_size(path: Path, file: StreamFile) -> bool:
    try:
        return path.stat().st_size >= file.size
    except FileNotFoundError:
        return False


def _has_bytes(path: Path, file: StreamFile) -> bool:
    """Return whether a file begins with the bytes of the stream."""
    try:
        fd = symlinks.open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    crc32 = begin = 0
    try:
        while begin < file.size:
            data = os.pread(fd, min(PIECE_BYTES, file.size - begin), begin)
            if not data:
                return False
            crc32 = zlib.crc32(data, crc32)
            begin += len(data)
    finally:
        os.close(fd)
    return crc32 == file.crc32
