"""A message of a stream: bytes of a binlog file, and where they belong."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from beanstalkd_py import errors
from beanstalkd_py.core.shared_memory import BinlogPosition

MOST_BYTES = 256 * 1024
"""The largest piece. NATS accepts messages up to 1 MiB by default."""

HEADER = "Piece"
"""Has epoch, first, file and offset as decimal numbers, and the CRC-32 of the bytes in hex."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes of binlog.<file> at `offset`.

    A piece continues the piece before it, or begins a later file. `epoch` identifies the primary
    that wrote it. `first` is the oldest file that the primary still has. A piece without bytes is
    a fence: the first message of a new primary, at the end of everything that is stored.
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

    def headers(self) -> dict[str, str]:
        numbers = (self.epoch, self.first, self.file, self.offset)
        return {HEADER: " ".join(map(str, numbers)) + f" {zlib.crc32(self.data):08x}"}

    @classmethod
    def of_message(cls, headers: Mapping[str, str] | None, data: bytes) -> Piece:
        """Decode a message. Raises ReplicationError if it is none of a binlog, or is damaged."""
        try:
            *numbers, checksum = (headers or {})[HEADER].split()
            epoch, first, file, offset = map(int, numbers)
            is_intact = int(checksum, 16) == zlib.crc32(data)
        except (KeyError, ValueError) as error:
            raise errors.ReplicationError(f"a message has no valid header: {error!r}") from error
        if not is_intact:
            raise errors.ReplicationError("the checksum of a message does not match its bytes")
        return cls(epoch, first, file, offset, data)
