"""Verify a backup, and write it to new folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.backup.history_files import HISTORY
from beanstalkd_py.backup.target import Backup, SavedFile, Target
from beanstalkd_py.binlog.layout import GUARD_TARGET, HISTORY_ID, LAYOUT, LOCK
from beanstalkd_py.binlog.new_folder import NewFolder
from beanstalkd_py.binlog.ownership import creating_as_owner_of
from beanstalkd_py.binlog.steps import FILE_MODE, Steps
from beanstalkd_py.history.files.layout import ABORT, DISPATCHED


def verify(backup: Backup, target: Target) -> Iterator[str]:
    """Read all chunks; yield a line for each damaged file. Raises OSError."""
    checked: set[str] = set()
    for file in backup.files:
        try:
            for name in file.chunks:
                if name not in checked:
                    target.chunk(name)
                    checked.add(name)
        except errors.PipelineError as error:
            yield f"{file.path}: {error}"


def restore(
    backup: Backup,
    target: Target,
    folder: Path,
    history: Path | None = None,
    steps: Steps | None = None,
) -> None:
    """Write a backup to `folder`, and its history to `history`; both are missing or empty.

    After an error or a kill they are as before, or only the history is there. Raises
    ToolUsageError, PipelineError, OSError.
    """
    steps = steps or Steps()
    places = [_Place(folder, _binlog_files(backup, history is not None), steps)]
    if history is not None:
        _check_apart(folder, history)
        places.insert(0, _Place(history, _history_files(backup, target), steps))
    for place in places:
        place.check()
    for place in places:
        place.write(target)
    for place in places:
        place.put_in_place()


def _check_apart(folder: Path, history: Path) -> None:
    one, other = folder.resolve(), history.resolve()
    if one == other or one in other.parents or other in one.parents:
        text = f"{folder} and {history} are not apart; restore to folders beside each other"
        raise errors.ToolUsageError(text)


def _binlog_files(backup: Backup, has_history: bool) -> dict[str, SavedFile]:
    return {
        file.path: file
        for file in backup.files
        if not file.path.startswith(HISTORY) and (has_history or not file.path.endswith(HISTORY_ID))
    }


def _history_files(backup: Backup, target: Target) -> dict[str, SavedFile]:
    if not backup.has_history:
        text = f"backup {backup.name} in {target.url} has no history; restore without --history"
        raise errors.ToolUsageError(text)
    return {
        file.path.removeprefix(HISTORY): file
        for file in backup.files
        if file.path.startswith(HISTORY)
    }


class _Place:
    """A new folder, and its files by their paths. Methods raise OSError."""

    def __init__(self, folder: Path, files: dict[str, SavedFile], steps: Steps) -> None:
        self._new = NewFolder(folder, steps)
        self._files = files
        self._below = sorted({str(Path(path).parent) for path in files} - {"."})
        self._steps = steps

    def check(self) -> None:
        """Raises ToolUsageError."""
        self._new.check()

    def write(self, target: Target) -> None:
        """Write all files to a folder beside it. Raises PipelineError."""
        staging = self._new.staging
        with creating_as_owner_of(self._new.like):
            self._new.begin(self._below)
            for path, file in self._files.items():
                _write(staging / path, file, target, self._steps)
            if LAYOUT in self._files:
                self._steps.link(staging / LOCK, Path(GUARD_TARGET))
            if DISPATCHED in self._files:
                self._steps.write(staging / ABORT, b"")  # so that it is opened as after a crash

    def put_in_place(self) -> None:
        self._new.put_in_place(self._below)


def _write(path: Path, file: SavedFile, target: Target, steps: Steps) -> None:
    steps.before(f"write {path}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, FILE_MODE), "wb") as out:
        for name in file.chunks:
            out.write(target.chunk(name))
        out.flush()
        os.fsync(out.fileno())
        size = out.tell()
    if size != file.size:
        raise errors.PipelineError(f"{file.path} of the backup has {size} bytes, not {file.size}")
