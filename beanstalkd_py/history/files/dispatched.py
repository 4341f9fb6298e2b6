"""The file `dispatched`: up to which offset of the log queues and index are on disk.

It is written after they were synced, so after a crash everything before that offset is there, and
everything behind it is made again. It also says how many queues and units there were and what the
last index file looked like, so that files that have got lost are noticed. RocketMQ has no such
file, and looks at timestamps of its checkpoint instead; that is how it loses units.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from beanstalkd_py.history.files import layout

SIZE = 512
"""Bytes of the file: one sector, which a disk writes wholly or not at all."""


@dataclass(frozen=True, slots=True)
class Dispatched:
    """`offset` of the log in bytes, and what there was then.

    `units` is the sum of the queues' next queue offsets, `first_units` of the first ones they have.
    `index_file` is the name of the last index file ("" without one), `index_header` its first 40
    bytes in hex, and `index_files` how many there were.
    """

    offset: int
    queues: int
    units: int
    first_units: int
    index_files: int
    index_file: str
    index_header: str

    def encode(self) -> bytes:
        """The file: a line of JSON with a CRC of the line without it, and spaces."""
        said = json.dumps(asdict(self), separators=(",", ":"))
        line = json.dumps({**asdict(self), "crc": zlib.crc32(said.encode())}, separators=(",", ":"))
        data = line.encode().ljust(SIZE - 1) + b"\n"
        assert len(data) == SIZE
        return data

    @classmethod
    def load(cls, path: Path) -> Dispatched | None:
        """What the file says. None: there is none, or it is damaged, which means the same."""
        try:
            said = json.loads(path.read_bytes())
            loaded = cls(**{each.name: said[each.name] for each in fields(cls)})
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        text = json.dumps(asdict(loaded), separators=(",", ":"))
        return loaded if zlib.crc32(text.encode()) == said.get("crc") else None

    def save(self, path: Path) -> None:
        """Writes it; on disk afterwards. OSError."""
        fd = layout.open_to_write(path)
        try:
            if os.pwrite(fd, self.encode(), 0) != SIZE:
                raise OSError(f"{path}: written in part")
            os.fsync(fd)
        finally:
            os.close(fd)
