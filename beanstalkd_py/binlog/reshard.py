"""Reshard: divide the jobs of a binlog folder among another number of shards.

All new files are written and synced in a staging folder, which one rename puts in force. Before it
the old files are valid and the staging folder is void. After it the new files are valid, and
`settle` moves them into place and removes the old ones; it can be repeated after a crash at any
point. `lock` is a guard (layout.py) from before the rename until the end. The caller holds
layout.lock_top.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from beanstalkd_py import errors
from beanstalkd_py.binlog import layout as layouts
from beanstalkd_py.binlog.layout import FileLock, Layout
from beanstalkd_py.binlog.lock_wait import locked_error, retry_while_locked
from beanstalkd_py.binlog.progress import LOGGER
from beanstalkd_py.binlog.steps import Steps
from beanstalkd_py.core.binlog_transfer import Transfer
from beanstalkd_py.core.clocks import Now, read_clocks
from beanstalkd_py.core.core import Core, CoreConfig
from beanstalkd_py.core.events import EventKind
from beanstalkd_py.core.shared_memory import new_shared

PIECE_BYTES = 1 << 22
"""Bytes written between two progress updates."""
BODY_MEMORY = 1 << 26
"""Bytes of job bodies in memory; others are read again when they are written."""
NEW_LOCK = "lock.new"


def reshard(
    top: Path,
    layout: Layout,
    file_size: int,
    steps: Steps | None = None,
    before_writing: Callable[[list[Path]], None] | None = None,
) -> int:
    """Change the folder's layout, with new files of `file_size` bytes. Return its number of jobs.

    Return -1 if it has that layout already. `before_writing` gets the locked old folders. Raises
    BinlogLockedError, or BinlogFolderError with the state that was left.
    """
    steps = steps or Steps()
    try:
        current = settle(top, steps)
        if current == layout:
            return -1
        with _undone_unless_committed(top, steps), _sources(top, current) as sources:
            if before_writing is not None:
                before_writing(layouts.folders_of(top, current))
            if current == layouts.WHOLE:
                _guard(top, steps)
            jobs = _write_generation(top, sources, layout, file_size, steps)
            steps.rename(top / layouts.STAGING, top / layouts.STAGED)
            settle(top, steps)  # while the old folders are still locked
    except OSError as error:
        done = os.path.lexists(top / layouts.STAGED)
        left = "the rest is done at the next start" if done else "its jobs are where they were"
        text = f"cannot reshard binlog folder {top}: {error.strerror}; {left}"
        raise errors.BinlogFolderError(text) from error
    return jobs


def settle(top: Path, steps: Steps) -> Layout:
    """Complete or undo an interrupted reshard and return the valid layout.

    Raises OSError, BinlogLockedError or BinlogFolderError.
    """
    if os.path.lexists(top / layouts.STAGED):
        _install(top, steps)
    if os.path.lexists(top / layouts.STAGING):
        _remove_staging(top / layouts.STAGING, steps)
    steps.remove(top / NEW_LOCK)
    layout = layouts.read_layout(top)
    if layout is None:
        _check_whole(top)
        _allow_opening(top, steps)
        return layouts.WHOLE
    if not (top / layouts.LOCK).is_symlink():
        # The guard was removed, so a server may be running.
        held = FileLock(top / layouts.LOCK)
        _guard(top, steps)
        held.close()
    _check_divided(top, layout)
    return layout


def _check_whole(top: Path) -> None:
    """Refuse shards without `layout`, which no crash leaves; removing them would lose jobs."""
    shards = layouts.shard_folders(top)
    if shards:
        raise errors.BinlogFolderError(
            f"binlog folder {top} has {shards[0].name} but no file {layouts.LAYOUT}, which would"
            " say how it is divided; restore it, or move the shards to another place"
        )


def _check_divided(top: Path, layout: Layout) -> None:
    foreign_files = layouts.binlog_files(top)
    if foreign_files:
        raise errors.BinlogFolderError(
            f"binlog folder {top} is divided into shards, but {foreign_files[0].name} lies beside"
            " them: another server wrote it; move such files to a folder of their own"
        )
    for folder in layouts.folders_of(top, layout):
        if not folder.is_dir():
            raise errors.BinlogFolderError(f"binlog folder {top} lacks {folder.name}")


# --- the guard ------------------------------------------------------------------------------------


def _guard(top: Path, steps: Steps) -> None:
    """Prevent others from opening the folder as a whole one."""
    steps.link(top / NEW_LOCK, Path(layouts.GUARD_TARGET))
    steps.rename(top / NEW_LOCK, top / layouts.LOCK)
    steps.sync_folder(top)


def _allow_opening(top: Path, steps: Steps) -> None:
    if (top / layouts.LOCK).is_symlink():
        steps.sync_folder(top)  # a killed reshard may have removed STAGED without a sync
        steps.write(top / NEW_LOCK, b"")
        steps.rename(top / NEW_LOCK, top / layouts.LOCK)
        steps.sync_folder(top)


# --- before the rename ----------------------------------------------------------------------------


@contextlib.contextmanager
def _undone_unless_committed(top: Path, steps: Steps) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if not os.path.lexists(top / layouts.STAGED):
            # The next start cleans up the rest.
            with contextlib.suppress(OSError, errors.BeanstalkdError):
                settle(top, steps)
        raise


@dataclass
class _Sources:
    """The valid folders, read and locked, and the highest id of all."""

    cores: list[tuple[Path, Core]] = field(default_factory=list)
    shared: Any = field(default_factory=new_shared)
    now: Now = field(default_factory=read_clocks)


@contextlib.contextmanager
def _sources(top: Path, layout: Layout) -> Iterator[_Sources]:
    sources = _Sources()
    with contextlib.ExitStack() as stack:
        for folder in layouts.folders_of(top, layout):
            config = CoreConfig(
                binlog_dir=str(folder),
                worker=len(sources.cores),
                body_memory=BODY_MEMORY // layout.workers,
            )
            try:
                core = Core(config, sources.shared, sources.now)
            except MemoryError as error:
                raise errors.BinlogFolderError(f"cannot read {folder}: {error}") from error
            stack.callback(core.close)
            _read(core, folder, sources.now, "" if folder == top else f"{folder.name}/")
            sources.cores.append((folder, core))
        yield sources


def _read(core: Core, folder: Path, now: Now, prefix: str) -> None:
    try:
        retry_while_locked(partial(core.read, now))
    except errors.BinlogLockedError:
        raise locked_error(folder) from None
    except errors.CoreError as error:
        text = f"cannot reshard: {error}; its jobs are where they were"
        raise errors.BinlogFolderError(text) from error
    for event in core.events():
        if event.kind == EventKind.LOG and event.level > logging.INFO:
            LOGGER.log(event.level, "%s%s", prefix, event.text)


def _write_generation(
    top: Path, sources: _Sources, layout: Layout, file_size: int, steps: Steps
) -> int:
    """Write and sync the new generation. Return the number of jobs."""
    for folder, core in sources.cores:
        _keep_damaged(folder, core.damaged_files(), steps)
    staging = top / layouts.STAGING
    folders = [staging / layouts.shard_name(index) for index in range(layout.workers)]
    for folder in [staging, *folders]:
        steps.make_folder(folder, top)
    names = [str(folder) for folder in folders]
    after = layouts.highest_kept(top)
    with contextlib.closing(Transfer(names, after, file_size, layout.colocate)) as transfer:
        jobs = _write_jobs(transfer, sources, steps)
    for folder in folders:
        layouts.check_highest_number(top, after + len(layouts.binlog_files(folder)))
        steps.sync_folder(folder)
    steps.write(staging / layouts.LAYOUT, layout.to_bytes())
    steps.sync_folder(staging)
    return jobs


def _write_jobs(transfer: Transfer, sources: _Sources, steps: Steps) -> int:
    for _, core in sources.cores:
        transfer.add(core)
    total = left = transfer.start(int(sources.shared.last_id), sources.now)
    with steps.progress(total) as advance:
        while left > 0:
            steps.before("transfer")
            left = transfer.write(PIECE_BYTES)
            advance(total - left)
    steps.before("finish")
    renumbered = transfer.finish()
    if renumbered:
        LOGGER.warning("jobs that got new ids because others had theirs: %d", renumbered)
    return total


def _keep_damaged(folder: Path, names: list[str], steps: Steps) -> None:
    """Give each damaged file a second name that survives the removal of old files."""
    for name in names:
        path = folder / name
        kept = [other for other in folder.glob(f"{name}.bad*") if other.samefile(path)]
        if kept:
            continue
        target = _free_name(folder / f"{name}.bad")
        steps.duplicate(path, target)
        LOGGER.warning("%s had unreadable entries and is kept as %s", path, target.name)
    if names:
        steps.sync_folder(folder)


def _free_name(wanted: Path) -> Path:
    path, number = wanted, 0
    while os.path.lexists(path):
        number += 1
        path = wanted.with_name(f"{wanted.name}.{number}")
    return path


def _remove_staging(staging: Path, steps: Steps) -> None:
    for folder in layouts.shard_folders(staging):
        for path in sorted(folder.iterdir()):
            steps.remove(path)
        steps.remove_folder(folder)
    steps.remove(staging / layouts.LAYOUT)
    steps.remove_folder(staging)


# --- after the rename -----------------------------------------------------------------------------


def _install(top: Path, steps: Steps) -> None:
    """Move the staged files into place and remove the old ones.

    Every step can be repeated; `layout` is moved last.
    """
    staged = top / layouts.STAGED
    steps.sync_folder(top)  # the rename must be on disk before an old file is removed
    layout = layouts.read_layout(staged)
    if layout == layouts.WHOLE:
        _install_whole(top, staged, steps)
    elif layout is not None:
        _install_shards(top, staged, layout, steps)
    # A start that finds `layout` needs the folders, also if a killed one has removed `layout`.
    steps.sync_folder(staged)
    for folder in layouts.shard_folders(staged):
        steps.remove_folder(folder)
    steps.remove_folder(staged)
    steps.sync_folder(top)


def _install_shards(top: Path, staged: Path, layout: Layout, steps: Steps) -> None:
    for path in sorted(top.iterdir()):
        if layouts.is_server_file(path.name) and path.name != layouts.LOCK:
            steps.remove(path)
    in_force = {folder.name for folder in layouts.folders_of(top, layout)}
    for folder in layouts.shard_folders(top):
        if folder.name not in in_force or (staged / folder.name).is_dir():
            _remove_shard(folder, steps)
    for folder in layouts.shard_folders(staged):
        steps.rename(folder, top / folder.name)
    steps.sync_folder(top)
    steps.rename(staged / layouts.LAYOUT, top / layouts.LAYOUT)
    steps.sync_folder(top)


def _install_whole(top: Path, staged: Path, steps: Steps) -> None:
    for path in layouts.binlog_files(staged / layouts.shard_name(0)):
        steps.rename(path, top / path.name)
    steps.sync_folder(top)
    for folder in layouts.shard_folders(top):
        _remove_shard(folder, steps)
    steps.remove(top / layouts.LAYOUT)
    steps.sync_folder(top)
    steps.remove(staged / layouts.LAYOUT)


def _remove_shard(folder: Path, steps: Steps) -> None:
    """Remove a shard, but move files that no server would remove beside it."""
    for path in sorted(folder.iterdir()):
        if layouts.is_server_file(path.name):
            steps.remove(path)
            continue
        kept = _free_name(folder.with_name(f"{folder.name}.{path.name}"))
        steps.rename(path, kept)
        LOGGER.warning("%s/%s is kept as %s", folder.name, path.name, kept.name)
    steps.sync_folder(folder.parent)
    steps.remove_folder(folder)
