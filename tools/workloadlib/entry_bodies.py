"""Bodies of entries, from the files of a binlog folder: a dump says only how long they are.

Knows where in an entry its body is, and nothing else of entries.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

END = b"\r\n"


class EntryBodies:
    """Has one file open, because entries come file by file. Methods raise OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = ""
        self._fd = -1

    def read(self, entry: dict[str, Any]) -> bytes:
        """The body of a full entry, as in a dump; it and a CR LF are the last of the entry."""
        if entry["file"] != self._name:
            self.close()
            self._fd = os.open(self._folder / entry["file"], os.O_RDONLY | os.O_CLOEXEC)
            self._name = entry["file"]
        size = entry["body_bytes"]
        return os.pread(self._fd, size, entry["offset"] + entry["bytes"] - len(END) - size)

    def close(self) -> None:
        """Leaves the file; another read opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self._name = -1, ""
