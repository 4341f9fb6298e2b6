"""Appends a primary's binlog to its stream, and keeps others from appending.

W1  The bytes of a piece never change: a repeated append has the same pieces behind the same
    sequence, so at most one of them is stored.
W2  After an append that failed, the message that follows the last own one decides: the same
    piece means that it is stored, none that it is not, another one that this server is not
    the primary any more.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from beanstalkd_py import errors, symlinks
from beanstalkd_py.binlog.layout import binlog_files, number_of
from beanstalkd_py.core.shared_memory import BinlogPosition
from beanstalkd_py.replication.folder_copy import CopyState
from beanstalkd_py.replication.log import LogUnavailableError, WrongSequenceError
from beanstalkd_py.replication.piece import MOST_BYTES, Piece

RETRY_S = 0.05
SHORT_S = 30.0
"""How long a stream may lack messages."""
AT_ONCE = 16
"""Pieces in one append: 4 MiB."""


class FencedError(errors.ReplicationError):
    """Another server has appended to the stream."""


class Stream(Protocol):
    """The part of Log that a writer needs."""

    async def append(self, worker: int, pieces: Sequence[Piece], expected: int) -> None: ...
    async def read_one(self, worker: int, sequence: int) -> bytes | None: ...
    async def purge(self, worker: int, before: int) -> None: ...


class StreamWriter:
    """Writes one worker's stream. `state` is the end of the stream, and follows it."""

    def __init__(self, log: Stream, worker: int, folder: Path, state: CopyState) -> None:
        self._log = log
        self._worker = worker
        self._folder = folder
        self._purged = 0
        self._starts = [one.sequence for one in state.files.values()]
        """The first messages of files that are not purged, as far as this server knows them."""
        self._first = 0
        """Piece.first of the last piece; 0 before the first one of this writer."""
        self._short_since_mono: float | None = None
        """Since when the stream, which answers, seems to lack its last message."""
        self.state = state
        self.unavailable = ""
        """The last error of the log, empty if it answers."""

    async def fence(self, epoch: int) -> None:
        """Append the first message of a new primary.

        Raises WrongSequenceError if the stream has more messages than `state`, FencedError if a
        primary of a higher epoch has appended.
        """
        if self.state.epoch >= epoch:
            raise FencedError(f"a server of epoch {self.state.epoch} has appended")
        position = self.state.position
        fence = Piece(epoch, next(iter(self.state.files), 0), *position)
        while True:
            try:
                await self._log.append(self._worker, [fence], self.state.sequence)
                break
            except LogUnavailableError as error:
                await self._pause(error)
            except WrongSequenceError:
                found = await self._read_next()
                if found != fence.encode():
                    raise
                break
        self.unavailable = ""
        self.state.add(fence, self.state.sequence + 1)

    async def write_until(self, position: BinlogPosition) -> None:
        """Append the folder's bytes up to a position, and return when they are stored.

        Raises FencedError, ReplicationError if the stream has lost messages or the folder lacks
        bytes, OSError.
        """
        batch: list[Piece] = []
        for piece in self._pieces(position):
            batch.append(piece)
            if len(batch) == AT_ONCE:
                await self._append(batch)
                batch = []
        if batch:
            await self._append(batch)

    def _pieces(self, position: BinlogPosition) -> Iterator[Piece]:
        """Yield the bytes behind `state`. The consumer may change it between two pieces."""
        at = self.state.position
        first = self._first_file()
        numbers = [at.file]
        if position.file != at.file:
            numbers = list(map(number_of, binlog_files(self._folder)))
        for number in numbers:
            if at.file <= number <= position.file:
                begin = at.offset if number == at.file else 0
                end = position.offset if number == position.file else None
                yield from self._pieces_of_file(first, number, begin, end)

    def _first_file(self) -> int:
        """Return the number of the oldest file, without reading the folder if possible."""
        known = next(iter(self.state.files), 0)
        if known and (self._folder / f"binlog.{known}").exists():
            return known
        files = binlog_files(self._folder)
        return number_of(files[0]) if files else 0

    def _pieces_of_file(
        self, first: int, number: int, begin: int, end: int | None
    ) -> Iterator[Piece]:
        fd = symlinks.open_file(self._folder / f"binlog.{number}", os.O_RDONLY)
        try:
            size = os.fstat(fd).st_size if end is None else end
            while begin < size:
                data = os.pread(fd, min(MOST_BYTES, size - begin), begin)
                if not data:
                    raise errors.ReplicationError(
                        f"{self._folder}/binlog.{number} ends at {begin}, but has {size} bytes"
                    )
                is_known = begin > 0 and first == self._first
                self._first = first
                yield Piece(self.state.epoch, 0 if is_known else first, number, begin, data)
                begin += len(data)
        finally:
            os.close(fd)

    async def _append(self, pieces: list[Piece]) -> None:
        while pieces:
            try:
                await self._log.append(self._worker, pieces, self.state.sequence)
                stored = len(pieces)
            except (LogUnavailableError, WrongSequenceError) as error:
                stored = await self._count_stored(pieces)
                if not stored:
                    if isinstance(error, WrongSequenceError):
                        self._check_short()
                    await self._pause(error)
            for piece in pieces[:stored]:
                self._add(piece)
            pieces = pieces[stored:]
            if stored:
                self._short_since_mono = None
        self.unavailable = ""

    def _check_short(self) -> None:
        """Raise ReplicationError if the stream has answered without its last message for too long.

        It expects another message than the next one, but does not have the next one.
        """
        now_mono = time.monotonic()
        self._short_since_mono = self._short_since_mono or now_mono
        if now_mono - self._short_since_mono >= SHORT_S:
            raise errors.ReplicationError(
                f"stream {self._worker} does not have message {self.state.sequence}, which it had"
                " stored: NATS has lost messages, or the stream was purged or replaced"
            )

    async def _count_stored(self, pieces: Sequence[Piece]) -> int:
        """Return how many of the pieces an append of unknown outcome has stored (W2)."""
        for count, piece in enumerate(pieces):
            found = await self._read_next(count)
            if found is None:
                return count
            if found != piece.encode():
                raise FencedError("another server has appended")
        return len(pieces)

    async def _read_next(self, skip: int = 0) -> bytes | None:
        while True:
            try:
                return await self._log.read_one(self._worker, self.state.sequence + 1 + skip)
            except LogUnavailableError as error:
                await self._pause(error)

    async def _pause(self, error: errors.ReplicationError) -> None:
        self.unavailable = str(error)
        if isinstance(error, LogUnavailableError):
            self._short_since_mono = None
        await asyncio.sleep(RETRY_S)

    def _add(self, piece: Piece) -> None:
        """Count a piece that is stored."""
        self.state.add(piece, self.state.sequence + 1)
        if piece.data and piece.offset == 0:
            self._starts.append(self.state.sequence)

    async def purge(self, needed: int | None = None) -> None:
        """Remove the messages of files that the primary has removed. Raises LogUnavailableError.

        Keeps those from `needed` on, and always whole files.
        """
        first = next(iter(self.state.files.values()), None)
        if first is None:
            return
        limit = first.sequence if needed is None else min(first.sequence, needed)
        before = max((start for start in self._starts if start <= limit), default=0)
        if before > self._purged + 1:
            await self._log.purge(self._worker, before)
            self._purged = before - 1
        self._starts = [start for start in self._starts if start >= before]
