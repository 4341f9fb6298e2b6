"""Write a clean folder beside a damaged one, with every readable job.

The damaged folder is only read. The new one is written and synced under a staging name; one rename
completes it. After a crash the next repair removes the staging folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.binlog.file_walk import Damage, damage_of_folder
from beanstalkd_py.binlog.folders import Folder
from beanstalkd_py.binlog.layout import (
    GUARD_TARGET,
    LAYOUT,
    LOCK,
    POLICIES,
    SCHEDULES,
    WHOLE,
    folders_of,
)
from beanstalkd_py.binlog.ownership import creating_as_owner_of
from beanstalkd_py.binlog.rewrite import ReadShard, read_shards, reason_of, write_jobs
from beanstalkd_py.binlog.steps import Steps
from beanstalkd_py.regular_file import read_regular

SUFFIX = ".repaired"
STAGING_SUFFIX = ".repairing"


@dataclass
class Repaired:
    """The result. `output` is None if nothing was damaged; entries in `damage` are lost."""

    output: Path | None = None
    jobs: int = 0
    files: int = 0
    size: int = 0
    damage: list[Damage] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        return {
            "output": None if self.output is None else str(self.output),
            "jobs": self.jobs,
            "files": self.files,
            "bytes": self.size,
            "not_kept": [damage.to_json() for damage in self.damage],
        }


def default_output(top: Path) -> Path:
    top = top.resolve()
    return top.with_name(top.name + SUFFIX)


def repair(folder: Folder, output: Path, file_size: int, steps: Steps | None = None) -> Repaired:
    """Write the readable jobs to `output`, which must not exist; `file_size` is bytes.

    The caller holds the folder's lock. Raises ToolUsageError, BinlogToolError.
    """
    steps = steps or Steps()
    output = output.resolve()
    _check_output(folder, output)
    staging = output.with_name(output.name + STAGING_SUFFIX)
    try:
        with read_shards(folder) as shards:
            done = Repaired(damage=damage_of_folder(folder))
            for read in shards:
                done.damage += read.damage
                done.jobs += read.walk.reader.jobs
            if not done.damage:
                return done
            _remove_staging(staging, steps)
            with creating_as_owner_of(folder.top):
                _write(folder, shards, staging, file_size, done, steps)
        steps.rename(staging, output)
        steps.sync_folder(output.parent)
    except OSError as error:
        text = f"cannot repair binlog folder {folder.top}: {reason_of(error)}; it is unchanged"
        raise errors.BinlogToolError(text) from error
    done.output = output
    return done


def _check_output(folder: Folder, output: Path) -> None:
    if os.path.lexists(output):
        raise errors.ToolUsageError(f"{output} is there already; give another --output")
    if not output.parent.is_dir():
        raise errors.ToolUsageError(f"{output.parent} is no directory; give another --output")
    if output.is_relative_to(folder.top.resolve()):
        text = f"{output} is inside the damaged folder, which stays as it is; give another --output"
        raise errors.ToolUsageError(text)


def _write(
    folder: Folder, shards: list[ReadShard], staging: Path, size: int, done: Repaired, steps: Steps
) -> None:
    """Write and sync the whole folder under its staging name; files have `size` bytes."""
    steps.make_folder(staging, folder.top)
    targets = folders_of(staging, folder.layout)
    for target in targets:
        if target != staging:
            steps.make_folder(target, folder.top)
    for read in shards:
        name = read.walk.shard.path.name
        target = staging if folder.layout == WHOLE else staging / name
        written = write_jobs(read, target, 1, "", size, steps)
        done.files += written.files
        done.size += written.size
    for target in targets:
        if target != staging:
            steps.sync_folder(target)
    if folder.layout != WHOLE:
        steps.write(staging / LAYOUT, folder.layout.to_bytes())
        steps.link(staging / LOCK, Path(GUARD_TARGET))
    for name in (POLICIES, SCHEDULES):
        with contextlib.suppress(FileNotFoundError):
            steps.write(staging / name, read_regular(folder.top / name))
    steps.sync_folder(staging)


def _remove_staging(staging: Path, steps: Steps) -> None:
    """Remove the rest of an interrupted repair."""
    if staging.is_dir() and not staging.is_symlink():
        steps.before(f"rmtree {staging}")
        shutil.rmtree(staging)
