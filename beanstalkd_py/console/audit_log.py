"""The audit log: a line of JSON for each login and for each operation that changes something."""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

LOGGER = logging.getLogger("beanstalkd_py")
KEPT = 1000
PAGE = 100


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who did what, at seconds since 1970; `before` and `after` are what the action changed."""

    user: str
    address: str
    server: str
    action: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    before: str = ""
    after: str = ""
    outcome: str = "done"
    at: float = field(default_factory=time.time)


def open_to_append(path: Path) -> int:
    """Return a descriptor of the file, which exists then. Raises OSError."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


class AuditLog:
    """Appends entries to a file, or only to the log of the process if there is no file.

    The last entries are in memory for the page. Raises OSError if the file cannot be opened.
    """

    def __init__(self, path: Path | None) -> None:
        self._recent: deque[AuditEntry] = deque(maxlen=KEPT)
        self._path = path
        self._fd = -1
        if path is not None:
            self._fd = open_to_append(path)
            if path.is_file():
                self._recent.extend(_last_entries(path))
                if not _is_complete(path):
                    os.write(self._fd, b"\n")

    def reopen(self) -> None:
        """Continue in the file that the path leads to now, after a rotation. Raises OSError."""
        if self._path is not None:
            previous, self._fd = self._fd, open_to_append(self._path)
            os.close(previous)

    def add(self, entry: AuditEntry) -> None:
        """Record an action before it happens, or its outcome. Raises OSError."""
        line = json.dumps(asdict(entry), ensure_ascii=True)
        LOGGER.info("audit: %s", line)
        if self._fd >= 0:
            data = line.encode() + b"\n"
            if os.write(self._fd, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._recent.append(entry)

    def page(self, before: float | None) -> list[AuditEntry]:
        """Return entries, newest first, of times below `before`."""
        found = (one for one in reversed(self._recent) if before is None or one.at < before)
        return [one for one, _ in zip(found, range(PAGE), strict=False)]


def _is_complete(path: Path) -> bool:
    """Return False if a kill or a full disk has left a part of a line."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        return file.read() in (b"", b"\n")


def _last_entries(path: Path) -> Iterator[AuditEntry]:
    with path.open("rb") as lines:
        size = lines.seek(0, os.SEEK_END)
        lines.seek(max(0, size - (1 << 20)))
        for line in lines.read().splitlines()[-KEPT:]:
            try:
                yield AuditEntry(**json.loads(line))
            except (ValueError, TypeError):
                continue  # the first line may be cut, and a kill can leave a part of the last one
