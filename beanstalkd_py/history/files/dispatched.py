"""The file `dispatched`: the log offset up to which queues and index are on disk.

It is written after they were synced. After a crash everything before that offset is there, and
everything behind it is dispatched again. It also records the number of queues and units and the
last index file, so that recovery detects lost files. RocketMQ has no such file; it relies on
timestamps of its checkpoint and can lose units.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from beanstalkd_py.history.files import layout

SIZE = 512
"""Bytes of the file: one sector, which a disk writes atomically."""


@dataclass(frozen=True, slots=True)
class Dispatched:
    """The `offset` in the log (bytes), and the state of the files at that time.

    `units` is the sum of the queues' next queue offsets, `first_units` of the first ones they have.
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
        """Return the CRC-32 of the JSON without it."""
        return zlib.crc32(_as_json(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Dispatched | None:
        """Read the file; None if it is missing or damaged."""
        try:
            values = json.loads(path.read_bytes())
            loaded = cls(**{each.name: values[each.name] for each in fields(cls)})
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return loaded if loaded._crc() == values.get("crc") else None

    def save(self, path: Path) -> None:
        """Write the file durably: a line of JSON, filled with spaces. Raises OSError."""
        line = _as_json({**asdict(self), "crc": self._crc()})
        data = line.ljust(SIZE - 1) + b"\n"
        assert len(data) == SIZE
        layout.overwrite(path, data)


def _as_json(values: dict[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode()
