"""Verify a backup, and write it to new folders."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.backup.history_files import HISTORY
from beanstalkd_py.backup.target import Backup, SavedFile, Target
from beanstalkd_py.binlog.layout import GUARD_TARGET, HISTORY_ID, LAYOUT, LOCK
from beanstalkd_py.binlog.ownership import creating_as_owner_of
from beanstalkd_py.binlog.steps import FILE_MODE, Steps
from beanstalkd_py.history.files.layout import ABORT, DISPATCHED

STAGING_SUFFIX = ".restoring"


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
    places = [_Place(folder, _binlog_files(backup, history is not None))]
    if history is not None:
        _check_apart(folder, history)
        places.insert(0, _Place(history, _history_files(backup, target)))
    for place in places:
        place.check()
    for place in places:
        place.write(target, steps)
    for place in places:
        place.put_in_place(steps)


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

    def __init__(self, folder: Path, files: dict[str, SavedFile]) -> None:
        self._folder = Path(os.path.abspath(folder))  # noqa: PTH100 - links stay
        self._staging = self._folder.with_name(self._folder.name + STAGING_SUFFIX)
        self._files = files

    def check(self) -> None:
        """Raises ToolUsageError."""
        folder = self._folder
        if not folder.parent.is_dir():
            raise errors.ToolUsageError(f"{folder.parent} is no directory; create it first")
        if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
            text = f"{folder} is not empty; give a new folder, or move its files to another place"
            raise errors.ToolUsageError(text)

    def write(self, target: Target, steps: Steps) -> None:
        """Write and sync all files to a folder beside it. Raises PipelineError."""
        staging = self._staging
        like = self._folder if self._folder.is_dir() else self._folder.parent
        with creating_as_owner_of(like):
            if staging.is_dir() and not staging.is_symlink():
                steps.before(f"rmtree {staging}")
                shutil.rmtree(staging)
            below = sorted({str(Path(path).parent) for path in self._files} - {"."})
            for name in ("", *below):
                steps.make_folder(staging / name, like)
            for path, file in self._files.items():
                _write(staging / path, file, target, steps)
            if LAYOUT in self._files:
                steps.link(staging / LOCK, Path(GUARD_TARGET))
            if DISPATCHED in self._files:
                steps.write(staging / ABORT, b"")  # so that it is opened as after a crash
            for name in (*below, ""):
                steps.sync_folder(staging / name)

    def put_in_place(self, steps: Steps) -> None:
        steps.rename(self._staging, self._folder)
        steps.sync_folder(self._folder.parent)


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
