"""Write a backup of a binlog folder."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.backup.open_file import OpenFile
from beanstalkd_py.backup.snapshot import snapshot
from beanstalkd_py.backup.target import CHUNK_BYTES, Backup, SavedFile, Target

SETTLED_S = 2.0
"""A file that changed more recently may change again without a change of its times."""


@dataclass(frozen=True, slots=True)
class Created:
    """A backup, and the bytes that were not in the target before."""

    backup: Backup
    written: int


def create(
    folder: Path, target: Target, name: str | None = None, history: Path | None = None
) -> Created:
    """Back up a folder and its history; a server may run there. Without a name it is the time.

    Raises ToolUsageError, BinlogFolderError, BinlogToolError, PipelineError, OSError.
    """
    now = datetime.now(UTC)
    name = name or now.strftime("%Y%m%dT%H%M%SZ")
    names = target.names()
    if name in names:
        raise errors.ToolUsageError(f"there is a backup {name} in {target.url}; give another name")
    previous: Sequence[SavedFile] = ()
    if names:
        with contextlib.suppress(errors.PipelineError):  # then all files are read
            previous = target.load(names[-1]).files  # usually the latest
    saver = _Saver(target, {file.path: file for file in previous})
    with snapshot(folder, history) as (found, files):
        saved = tuple(saver.save(file) for file in files)
    created = datetime.now(UTC).isoformat(timespec="milliseconds")
    backup = Backup(name, created, found.layout.workers, saved)
    target.save(backup)
    return Created(backup, saver.written)


class _Saver:
    def __init__(self, target: Target, previous: dict[str, SavedFile]) -> None:
        self._target = target
        self._previous = previous
        self.written = 0

    def save(self, file: OpenFile) -> SavedFile:
        status = os.fstat(file.fd)
        version = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        before = self._previous.get(file.path)
        if before and file.complete and before.version == version and self._target.has(before):
            return before
        chunks = tuple(self._chunks(file))
        is_settled = status.st_ctime_ns / 1e9 < time.time() - SETTLED_S
        return SavedFile(
            file.path, file.size, chunks, version if file.complete and is_settled else ()
        )

    def _chunks(self, file: OpenFile) -> list[str]:
        chunks = []
        for at in range(0, file.size, CHUNK_BYTES):
            length = min(CHUNK_BYTES, file.size - at)
            data = os.pread(file.fd, length, at)
            if len(data) < length:
                # The server has cut the unused end of a file that it has filled meanwhile.
                data = data.ljust(length, b"\0")
            name, is_new = self._target.put_chunk(data)
            self.written += len(data) if is_new else 0
            chunks.append(name)
        return chunks
