"""Recognizes a machine that does not have the files of a read.

The driver finds the files, and tasks open them by their paths, perhaps on other machines. A file
that is missing there may just have been removed by its server. If its folder is missing or empty,
or if no file of the read can be opened, the machine does not have the files.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sources.decoder import File
from beanstalkd_py.pipeline.sources.paths import is_bare

SAMPLE = 64
"""Files of a read that each task knows."""
_NOT_THERE = (FileNotFoundError, NotADirectoryError, PermissionError)
_REMEDY = (
    "make the files readable at these paths on all machines of the cluster, or run where they are,"
    " with --master 'local[*]'"
)


def sample_of(tasks: Iterable[Sequence[File]]) -> tuple[File, ...]:
    """Return files spread over all tasks, the newest one first: servers remove the oldest."""
    files = [file for task in tasks for file in task]
    return tuple(files[:: -max(1, -(-len(files) // SAMPLE))])


class Reach(Generic[File]):
    """Checks files that cannot be opened; `known` are files of the whole read, () if unknown."""

    def __init__(self, known: Sequence[File], open_file: Callable[[File], Any]) -> None:
        self._known = known
        self._open_file = open_file

    def check(self, file: File, error: OSError) -> None:
        """Raise PipelineUsageError if this machine lacks the folder, or all known files.

        Raise an error of another file system, which another try of the task may not have.
        """
        is_here = is_bare(file.path)
        if not isinstance(error, _NOT_THERE):
            if is_here:
                return
            raise error
        folder = file.path.rpartition("/")[0]
        if is_here and _is_empty(folder):
            what = f"any file in {folder}, where the driver found some"
        elif self._known and not any(map(self._can_open, self._known)):
            what = f"{file.path} or any other file of this read"
        else:
            self._known = ()
            return
        raise PipelineUsageError(
            f"host {socket.gethostname()} cannot open {what}: {error.strerror}; {_REMEDY}"
        )

    def _can_open(self, file: File) -> bool:
        try:
            self._open_file(file)
        except OSError:
            return False
        return True


def _is_empty(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is None
    except OSError:
        return True
