"""A file that is open for a backup."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from beanstalkd_py.regular_file import open_regular


@dataclass(frozen=True, slots=True)
class OpenFile:
    """An open file, of which the first `size` bytes belong to the backup.

    `path` is its path in the backup. A file that is not `complete` may grow.
    """

    path: str
    fd: int
    size: int
    complete: bool


class ChangedError(Exception):
    """The server has removed or renamed a file before it was opened."""


def open_for_backup(
    stack: contextlib.ExitStack, folder: Path, name: str, prefix: str = ""
) -> OpenFile:
    """Open a file until the stack is closed. Raises ChangedError, OSError."""
    try:
        fd = open_regular(folder / name)
    except FileNotFoundError:
        raise ChangedError from None
    stack.callback(os.close, fd)
    return OpenFile(prefix + name, fd, os.fstat(fd).st_size, complete=True)
