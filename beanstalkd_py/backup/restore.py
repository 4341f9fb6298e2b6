"""Verify a backup, and write it to a new binlog folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.backup.target import Backup, SavedFile, Target
from beanstalkd_py.binlog.layout import GUARD_TARGET, LAYOUT, LOCK
from beanstalkd_py.binlog.ownership import creating_as_owner_of
from beanstalkd_py.binlog.steps import FILE_MODE, Steps

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


def restore(backup: Backup, target: Target, folder: Path, steps: Steps | None = None) -> None:
    """Write the files of a backup to `folder`, which is missing or empty.

    After an error or a kill it is as before. Raises ToolUsageError, PipelineError, OSError.
    """
    steps = steps or Steps()
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 - links stay
    _check(folder)
    staging = folder.with_name(folder.name + STAGING_SUFFIX)
    like = folder if folder.is_dir() else folder.parent
    with creating_as_owner_of(like):
        if staging.is_dir() and not staging.is_symlink():
            steps.before(f"rmtree {staging}")
            shutil.rmtree(staging)
        steps.make_folder(staging, like)
        shards = {Path(file.path).parent.name for file in backup.files} - {""}
        for shard in sorted(shards):
            steps.make_folder(staging / shard, like)
        for file in backup.files:
            _write(staging / file.path, file, target, steps)
        if any(file.path == LAYOUT for file in backup.files):
            steps.link(staging / LOCK, Path(GUARD_TARGET))
        for shard in sorted(shards):
            steps.sync_folder(staging / shard)
        steps.sync_folder(staging)
    steps.rename(staging, folder)
    steps.sync_folder(folder.parent)


def _check(folder: Path) -> None:
    if not folder.parent.is_dir():
        raise errors.ToolUsageError(f"{folder.parent} is no directory; create it first")
    if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        text = f"{folder} is not empty; give a new folder, or move its files to another place"
        raise errors.ToolUsageError(text)


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
