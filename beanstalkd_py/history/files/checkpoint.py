"""The files `checkpoint` and `dispatched`: up to where log, queues and index are on disk.

RocketMQ recovers from the timestamps in `checkpoint` and can lose units. This store recovers from
`dispatched`, which RocketMQ does not have. It is written after a sync of queues and index, so that
these have everything before its offset; recovery dispatches the rest again. It also records the
number of queues and units and the last index file, so that recovery detects lost files.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any

from beanstalkd_py.history.files import layout
from beanstalkd_py.regular_file import read_regular

CHECKPOINT_BYTES = 4096
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
            data = read_regular(path)
        except FileNotFoundError:
            return cls()
        return cls(*_FIELDS.unpack_from(data.ljust(_FIELDS.size, b"\0")))

    def save(self, path: Path) -> None:
        """Write the file durably. Raises OSError."""
        layout.overwrite(path, _FIELDS.pack(*astuple(self)).ljust(CHECKPOINT_BYTES, b"\0"))


@dataclass(frozen=True, slots=True)
class Dispatched:
    """The `offset` in the log (bytes), and the state of the files at that time.

    `units` is the sum of the queues' next queue offsets, `first_units` that of their first ones.
    `index_file` is the name of the last index file ("" without one), `index_header` its first 40
    bytes in hex, `index_files` the number of index files.
    """

    offset: int
    queues: int
    units: int
    first_units: int
    index_files: int
    index_file: str
    index_header: str

    def _crc(self) -> int:
        return zlib.crc32(_as_json(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Dispatched | None:
        """Read the file; None if it is missing or damaged."""
        try:
            values = json.loads(read_regular(path))
            loaded = cls(**{each.name: values[each.name] for each in fields(cls)})
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return loaded if loaded._crc() == values.get("crc") else None

    def save(self, path: Path) -> None:
        """Replace the file durably by a line of JSON. Raises OSError.

        Without a whole file, recovery would take the store for another program's and accept records
        whose properties were not written.
        """
        layout.write_file(path, _as_json({**asdict(self), "crc": self._crc()}) + b"\n")


def _as_json(values: dict[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode()
