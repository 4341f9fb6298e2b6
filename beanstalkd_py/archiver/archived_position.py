"""The file `archived` of a store: how far each binlog folder was read when files were last removed.

It holds what the removed files can no longer provide: the read positions and the events of jobs
that are still open. It is replaced as a whole after the store was synced and before a file is
removed. Messages after it are recognized by their UNIQ_KEY.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from beanstalkd_py import symlinks
from beanstalkd_py.core.shared_memory import BinlogPosition
from beanstalkd_py.errors import StoreDamagedError
from beanstalkd_py.history.files.layout import write_file
from beanstalkd_py.regular_file import read_regular

ARCHIVED = "archived"
FORMAT = 1
_MAGIC = b"bsarchiv"
_HEAD = struct.Struct("<8sII")
"""Magic, CRC-32 of everything after this head, length of the JSON that follows."""


@dataclass(slots=True)
class ArchivedPositions:
    """Contents of the file, by folder key.

    `read` is where reading resumes. Files numbered below `removable_below` may be missing.
    `checkpoint` is the result of JobHistories.save_checkpoint, `log_end` the end of the commit log.
    """

    read: dict[str, BinlogPosition] = field(default_factory=dict)
    removable_below: dict[str, int] = field(default_factory=dict)
    checkpoint: bytes = b""
    log_end: int = 0

    def save(self, store: Path) -> int:
        """Replace the file durably and return its size in bytes. Raises OSError."""
        values = {
            "format": FORMAT,
            "read": self.read,
            "gone": self.removable_below,  # such files may be missing
            "log_end": self.log_end,
        }
        text = json.dumps(values).encode()
        crc = zlib.crc32(self.checkpoint, zlib.crc32(text))
        data = b"".join((_HEAD.pack(_MAGIC, crc, len(text)), text, self.checkpoint))
        write_file(store / ARCHIVED, data)
        return len(data)

    @staticmethod
    def forget(store: Path) -> None:
        """Remove the file durably. Raises OSError."""
        symlinks.remove(store / ARCHIVED, missing_ok=True)
        symlinks.sync_folder(store)

    @classmethod
    def load(cls, store: Path) -> ArchivedPositions:
        """Read the file; empty if it does not exist. Raises StoreDamagedError, OSError."""
        path = store / ARCHIVED
        try:
            data = read_regular(path)
        except FileNotFoundError:
            return cls()
        try:
            magic, crc, length = _HEAD.unpack_from(data)
            body = memoryview(data)[_HEAD.size :]
            if magic != _MAGIC or zlib.crc32(body) != crc:
                raise ValueError("its checksum is wrong")
            values = json.loads(bytes(body[:length]))
            if values["format"] != FORMAT:
                raise ValueError(f"format {values['format']!r} is not known to this version")
            read = {key: BinlogPosition(*map(int, at)) for key, at in values["read"].items()}
            removable_below = {key: int(number) for key, number in values["gone"].items()}
            log_end = int(values.get("log_end", 0))  # absent in files of older versions
        except (ValueError, KeyError, TypeError, IndexError, struct.error) as error:
            raise StoreDamagedError(
                f"{path} cannot be understood: {error}; without this file, timelines of jobs that"
                " are open lack what happened so far"
            ) from error
        return cls(read, removable_below, bytes(body[length:]), log_end)
