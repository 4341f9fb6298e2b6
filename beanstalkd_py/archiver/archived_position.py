"""The file `archived` of a store: up to where binlogs were read when files of them were removed.

What is archived is told by the store itself: the last message of each topic says where in the
binlog its job ended. This file has what no longer is anywhere else once binlog files have gone:
the events of jobs that are still open, and up to where they were collected. It is written as a
whole, after the store was synced and before any file is removed. Must not know what the events are.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from beanstalkd_py import symlinks
from beanstalkd_py.core.shared_memory import Place
from beanstalkd_py.errors import StoreDamagedError
from beanstalkd_py.history.files.layout import sync_folder, write_file

ARCHIVED = "archived"
FORMAT = 1
_MAGIC = b"bsarchiv"
_HEAD = struct.Struct("<8sII")
"""Magic, CRC-32 of what follows this head, bytes of the JSON that comes first."""


@dataclass(slots=True)
class Places:
    """What the file says, by the key of a folder.

    `read` is where reading goes on, `gone` below which number files may be gone. `carried` is what
    Lives.carry_out gave. `log_end` is where the log ended then, bytes.
    """

    read: dict[str, Place] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    carried: bytes = b""
    log_end: int = 0

    def save(self, store: Path) -> int:
        """Writes the file of this store; on disk afterwards. Returns its bytes. OSError."""
        said = {"format": FORMAT, "read": self.read, "gone": self.gone, "log_end": self.log_end}
        text = json.dumps(said).encode()
        crc = zlib.crc32(self.carried, zlib.crc32(text))
        data = b"".join((_HEAD.pack(_MAGIC, crc, len(text)), text, self.carried))
        write_file(store / ARCHIVED, data)
        return len(data)

    @staticmethod
    def forget(store: Path) -> None:
        """Removes the file; on disk afterwards. OSError."""
        symlinks.remove(store / ARCHIVED, missing_ok=True)
        sync_folder(store)

    @classmethod
    def load(cls, store: Path) -> Places:
        """What the file says; nothing without one. StoreDamagedError, OSError."""
        path = store / ARCHIVED
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return cls()
        try:
            magic, crc, length = _HEAD.unpack_from(data)
            body = memoryview(data)[_HEAD.size :]
            if magic != _MAGIC or zlib.crc32(body) != crc:
                raise ValueError("its checksum is wrong")
            said = json.loads(bytes(body[:length]))
            if said["format"] != FORMAT:
                raise ValueError(f"format {said['format']!r} is not known to this version")
            read = {
                str(key): Place(int(place[0]), int(place[1])) for key, place in said["read"].items()
            }
            gone = {str(key): int(number) for key, number in said["gone"].items()}
            log_end = int(said.get("log_end", 0))  # files of older versions do not say
        except (ValueError, KeyError, TypeError, IndexError, struct.error) as error:
            raise StoreDamagedError(
                f"{path} cannot be understood: {error}; without this file, timelines of jobs that"
                " are open lack what happened so far"
            ) from error
        return cls(read, gone, bytes(body[length:]), log_end)
