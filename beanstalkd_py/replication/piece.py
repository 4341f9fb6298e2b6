"""A message of a stream: bytes of a binlog file, and where they belong."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import msgpack

from beanstalkd_py import errors
from beanstalkd_py.core.shared_memory import BinlogPosition

MOST_BYTES = 256 * 1024
"""The largest piece. NATS accepts messages up to 1 MiB by default."""

NUMBERS_BYTES = 64
"""More than the numbers of a message."""
CHECKSUM_BYTES = 4


class PieceError(errors.ReplicationError):
    """A message is damaged, or does not continue the one before it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes of binlog.<file> at `offset`.

    A piece continues the piece before it, or begins a later file. `epoch` identifies the primary
    that wrote it. `first` is the oldest file that the primary still has; 0 if that is as in the
    piece before it, which this one continues then. A piece without bytes is a fence: the first
    message of a new primary, at the end of everything that is stored.

    A message is a msgpack array of epoch, first, file and offset, the CRC-32 of these numbers and
    the bytes, and the bytes. Small messages are frequent, so the array is empty if `first` is 0.
    """

    epoch: int
    first: int
    file: int
    offset: int
    data: bytes = b""

    @property
    def begin(self) -> BinlogPosition:
        return BinlogPosition(self.file, self.offset)

    @property
    def end(self) -> BinlogPosition:
        return BinlogPosition(self.file, self.offset + len(self.data))

    def encode(self) -> bytes:
        is_short = self.first == 0 and bool(self.data)
        numbers: bytes = msgpack.packb([] if is_short else self._numbers())
        return numbers + self._checksum().to_bytes(CHECKSUM_BYTES, "big") + self.data

    def _numbers(self) -> list[int]:
        return [self.epoch, self.first, self.file, self.offset]

    def _checksum(self) -> int:
        return zlib.crc32(self.data, zlib.crc32(msgpack.packb(self._numbers())))

    @classmethod
    def decode(cls, message: bytes, epoch: int, end: BinlogPosition) -> Piece:
        """Decode the message after one of `epoch` whose bytes end at `end`. Raises PieceError."""
        unpacker = msgpack.Unpacker()
        unpacker.feed(message[:NUMBERS_BYTES])
        try:
            numbers = unpacker.unpack()
            if not isinstance(numbers, list):
                raise ValueError("not an array")
            epoch, first, file, offset = map(int, numbers or (epoch, 0, *end))
        except (msgpack.UnpackException, ValueError, TypeError) as error:
            raise PieceError(f"no valid numbers: {error!r}") from error
        at = unpacker.tell()
        begin = at + CHECKSUM_BYTES
        piece = cls(epoch, first, file, offset, message[begin:])
        if message[at:begin] != piece._checksum().to_bytes(CHECKSUM_BYTES, "big"):
            raise PieceError(
                f"wrong checksum for epoch {epoch} and binlog.{file} at {offset}: it is damaged, or"
                " does not continue the message before it"
            )
        return piece


def decode_all(messages: Iterable[bytes], epoch: int, end: BinlogPosition) -> list[Piece]:
    """Decode consecutive messages up to the first bad one. Raises PieceError if there is no other.

    `epoch` and `end` are those of the message before them.
    """
    found: list[Piece] = []
    for message in messages:
        try:
            piece = Piece.decode(message, epoch, end)
        except PieceError:
            if not found:
                raise
            break
        found.append(piece)
        epoch, end = piece.epoch, piece.end
    return found
