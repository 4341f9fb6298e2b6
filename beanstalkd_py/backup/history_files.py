"""The files of a history store at one moment, while an archiver may write to it.

Only the log and what belongs to it are saved: opening the store makes its queues and its index
again. Tails that a recovery has set aside are left out. The small files are opened before the log,
because each of them describes a log that is at least as long. The binlog files must be opened
before, and read to their ends after that: then they have everything that this history lacks.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.archiver.archived_position import ARCHIVED
from beanstalkd_py.backup.open_file import OpenFile, open_for_backup
from beanstalkd_py.history.files import layout
from beanstalkd_py.history.options import STORE_FILE

HISTORY = "history/"
"""The prefix of its files in a backup."""
LOG = f"{HISTORY}{layout.COMMIT_LOG}/"
_SMALL_FILES = (STORE_FILE, ARCHIVED, layout.DISPATCHED)
_PIECE = 1 << 20


def open_history(stack: contextlib.ExitStack, store: Path) -> list[OpenFile]:
    """Open the files of a store. Raises ToolUsageError, ChangedError, OSError."""
    if not (store / STORE_FILE).exists():
        raise errors.ToolUsageError(
            f"{store} is no history of a server, or of one that has just started: it has no"
            f" {STORE_FILE}"
        )
    files = [
        open_for_backup(stack, store, name, HISTORY)
        for name in _SMALL_FILES
        if (store / name).exists()
    ]
    log = store / layout.COMMIT_LOG
    for start in layout.segment_starts(log):
        files.append(open_for_backup(stack, log, layout.segment_name(start), LOG))
    if files[-1].path.startswith(LOG):
        files[-1] = _without_unused_end(files[-1])
    return files


def _without_unused_end(file: OpenFile) -> OpenFile:
    """Leave out the zeros behind the last message; opening the store adds them again."""
    end = at = 0
    while at < file.size:
        try:
            at = os.lseek(file.fd, at, os.SEEK_DATA)
        except OSError:
            break  # only a hole follows
        piece = os.pread(file.fd, _PIECE, at)
        if not piece:
            break
        if data := piece.rstrip(b"\0"):
            end = at + len(data)
        at += len(piece)
    return OpenFile(file.path, file.fd, end, complete=False)
