"""The file `checkpoint`: until when log, queues and index are on disk, by store timestamps.

RocketMQ reads it after a crash. This store does not need it: see dispatched.py.
"""

from __future__ import annotations

import os
import struct
from dataclasses import astuple, dataclass
from pathlib import Path

from beanstalkd_py.history.files import layout

SIZE = 4096
_FIELDS = struct.Struct(">5q")


@dataclass(slots=True)
class Checkpoint:
    """Timestamps in milliseconds, offsets in bytes; 0 is not known."""

    log_timestamp: int = 0
    queues_timestamp: int = 0
    index_timestamp: int = 0
    master_flushed_offset: int = 0
    confirmed_offset: int = 0

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """What the file says; all unknown without one."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return cls()
        return cls(*_FIELDS.unpack_from(data.ljust(_FIELDS.size, b"\0")))

    def encode(self) -> bytes:
        """The whole file."""
        return _FIELDS.pack(*astuple(self)).ljust(SIZE, b"\0")

    def save(self, path: Path) -> None:
        """Writes it; on disk afterwards. OSError."""
        fd = layout.open_to_write(path)
        try:
            if os.pwrite(fd, self.encode(), 0) != SIZE:
                raise OSError(f"{path}: written in part")
            os.fsync(fd)
        finally:
            os.close(fd)
