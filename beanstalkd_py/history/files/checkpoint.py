"""The file `checkpoint`: the store timestamps up to which log, queues and index are on disk.

RocketMQ reads it after a crash. This store recovers from the file `dispatched` instead.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from pathlib import Path

from beanstalkd_py.history.files import layout

SIZE = 4096
_FIELDS = struct.Struct(">5q")


@dataclass(slots=True)
class Checkpoint:
    """Timestamps in milliseconds, offsets in bytes; 0 means unknown."""

    log_timestamp: int = 0
    queues_timestamp: int = 0
    index_timestamp: int = 0
    master_flushed_offset: int = 0
    confirmed_offset: int = 0

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Read the file; all fields are unknown if it does not exist."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return cls()
        return cls(*_FIELDS.unpack_from(data.ljust(_FIELDS.size, b"\0")))

    def save(self, path: Path) -> None:
        """Write the file durably. Raises OSError."""
        layout.overwrite(path, _FIELDS.pack(*astuple(self)).ljust(SIZE, b"\0"))
