"""The binlog folder of each worker, resharded first if the number of workers has changed.

Runs after the sockets listen and before a worker is configured. Resharding runs in a child process,
so that its memory is freed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from beanstalkd_py import errors
from beanstalkd_py.binlog.lock_wait import locked_error
from beanstalkd_py.binlog.ownership import creating_as_owner_of
from beanstalkd_py.plural import counted
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.options import AUTO_WORKERS, DEFAULT_FILE_SIZE, ServeOptions, new_workers
from beanstalkd_py.server.process.exit_status import EXIT_ERROR, EXIT_OK
from beanstalkd_py.server.process.privileges import die_with_parent
from beanstalkd_py.symlinks import resolved

if TYPE_CHECKING:
    from beanstalkd_py.binlog.layout import FileLock, Layout

PROGRESS_S = 5.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

# Exit statuses of the child besides EXIT_OK. Its error message comes through a pipe.
_CHILD_FAILED = 3
_CHILD_LOCKED = 4


@dataclass(frozen=True, slots=True)
class ShardFolders:
    """The folder of each worker, and the lock of the binlog folder if it has several shards."""

    paths: list[str]
    lock: FileLock | None

    def close(self) -> None:
        """Release the lock before the process ends."""
        if self.lock is not None:
            self.lock.close()


def with_workers(options: ServeOptions) -> ServeOptions:
    """Return the options with a number of workers. Raises BinlogFolderError.

    Without --workers a folder keeps its layout, including --colocate unless that was given.
    """
    if options.workers != AUTO_WORKERS:
        return options
    from beanstalkd_py.binlog.layout import present_layout

    present = None if options.binlog_dir is None else present_layout(Path(options.binlog_dir))
    if present is None:
        return replace(options, workers=new_workers())
    colocate = present.colocate if options.colocate is None else options.colocate
    return replace(options, workers=present.workers, colocate=colocate)


def lock_shard_folders(
    folder: str,
    workers: int,
    colocate: bytes | None = None,
    file_size: int = DEFAULT_FILE_SIZE,
    progress: Callable[[], None] = lambda: None,
    history: ServeOptions | None = None,
    stop_received: Callable[[], bool] = lambda: False,
) -> ShardFolders:
    """Return the binlog folder of each worker, locked until the result is closed.

    `folder` exists. A single worker gets the folder itself, and locks it. While the folder is
    resharded, `progress` is called every few seconds. With `history`, finished jobs are archived
    before their files are removed. No reshard begins if `stop_received()`, which is for signals
    that the caller has caught before. Main thread only, before any other thread or event loop.
    Raises BinlogLockedError, BinlogFolderError, or WorkerError with status 0 after a stop signal.
    """
    from beanstalkd_py.binlog import layout as layouts

    top = resolved(folder)
    if workers == 1 and layouts.is_whole(top):
        return ShardFolders([str(top)], None)
    layouts.read_layout(top)  # raises before anything is locked
    target = layouts.Layout.wanted(workers, colocate)
    for _ in range(2):
        lock = layouts.lock_top(top)
        if not is_settled(top, target):
            lock.close()
            work = partial(reshard_here, top, target, file_size, _log_level(top), history)
            _in_child(top, work, progress, stop_received)
            continue
        paths = [str(path) for path in layouts.folders_of(top, target)]
        if target != layouts.WHOLE:
            return ShardFolders(paths, lock)
        lock.remove()
        return ShardFolders(paths, None)
    raise locked_error(top)  # another process changes it at the same time


def is_settled(top: Path, target: Layout) -> bool:
    """Return whether the folder has this layout and no interrupted reshard."""
    from beanstalkd_py.binlog import layout as layouts

    if target == layouts.WHOLE:
        return layouts.is_whole(top)
    return (
        (top / layouts.LOCK).is_symlink()
        and not any(os.path.lexists(top / name) for name in (layouts.STAGING, layouts.STAGED))
        and layouts.read_layout(top) == target
        and not layouts.binlog_files(top)
        and all(path.is_dir() for path in layouts.folders_of(top, target))
    )


def reshard_here(
    top: Path, target: Layout, file_size: int, level: int, history: ServeOptions | None = None
) -> None:
    """Reshard in this process and log at `level`. Raises BinlogLockedError, BinlogFolderError."""
    from beanstalkd_py.binlog import layout as layouts
    from beanstalkd_py.binlog.permission import check_permission
    from beanstalkd_py.binlog.progress import progress_on_stderr
    from beanstalkd_py.binlog.reshard import reshard
    from beanstalkd_py.binlog.steps import Steps

    top = resolved(top)
    layouts.check_not_replicated(top)
    check_permission(top, writing=True)
    with contextlib.closing(layouts.lock_top(top)) as lock:
        LOGGER.log(level, "binlog folder %s: resharding for %s", top, target)
        before = (
            warn_of_unarchived_jobs if history is None else partial(archive_before_reshard, history)
        )
        with creating_as_owner_of(top):
            steps = Steps(progress=progress_on_stderr(level))
            jobs = reshard(top, target, file_size, steps, before)
        if jobs < 0:
            LOGGER.log(level, "binlog folder %s: nothing to do", top)
        else:
            LOGGER.log(level, "binlog folder %s: resharded for %s; jobs: %d", top, target, jobs)
        if target == layouts.WHOLE:
            lock.remove()


def warn_of_unarchived_jobs(folders: list[Path]) -> None:
    """Warn if a reshard without --history loses finished jobs of an existing history."""
    from beanstalkd_py.binlog.layout import HISTORY_ID

    if any((folder / HISTORY_ID).exists() for folder in folders):
        LOGGER.warning(
            "this binlog has a history, but --history is not set; finished jobs that are not"
            " archived yet will be missing from it"
        )


def archive_before_reshard(history: ServeOptions, folders: list[Path]) -> None:
    """Archive the finished jobs of these locked folders. Raises BinlogFolderError."""
    from beanstalkd_py.archiver.archive import archive_rest
    from beanstalkd_py.archiver.store_settings import writing_history
    from beanstalkd_py.binlog.done_files import list_done_files, remove_files

    try:
        settings = history.store_settings()
        with writing_history(settings.folder):
            jobs = archive_rest(settings, folders, LOGGER.error)
        # The archive may have kept done files for jobs without an end, for example because C
        # beanstalkd served the folder. After the reshard they would count as files of a new folder.
        for folder in folders:
            remove_files(list_done_files(folder))
    except (errors.StoreError, OSError) as error:
        raise errors.BinlogFolderError(
            f"cannot archive finished jobs before resharding: {error};"
            " fix that, keep the number of --workers, or omit --history"
        ) from error
    else:
        LOGGER.info("archived %s", counted(jobs, "finished job"))


# --- the child ------------------------------------------------------------------------------------


def _in_child(
    top: Path,
    work: Callable[[], None],
    progress: Callable[[], None],
    stop_received: Callable[[], bool],
) -> None:
    # Fork without exec is safe here: the process has no threads, event loop or core yet.
    parent = os.getpid()
    # Block signals until both processes have set their handlers.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    if stop_received():
        raise errors.WorkerError("stopped before the reshard", EXIT_OK)
    reader, writer = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        _run_child(writer, parent, work, mask)
    os.close(writer)
    text, status = _wait_for(child, reader, mask, progress)
    if status == _CHILD_LOCKED:
        raise errors.BinlogLockedError(text)
    if -status in STOP_SIGNALS:
        stopped = "stopped during the reshard; the next start repeats it"
        raise errors.WorkerError(stopped, EXIT_OK)
    if status != EXIT_OK:
        text = text or f"resharding binlog folder {top} failed with status {status}"
        raise errors.BinlogFolderError(text)


def _wait_for(
    child: int, reader: int, mask: set[int], progress: Callable[[], None]
) -> tuple[str, int]:
    """Return the child's error message and status, negative for a signal. Relays stop signals."""

    def relay(number: int, frame: FrameType | None) -> None:
        os.kill(child, signal.SIGTERM)

    previous = {number: signal.signal(number, relay) for number in STOP_SIGNALS}
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        with os.fdopen(reader, "rb") as pipe:
            progress()
            while not select.select([pipe], [], [], PROGRESS_S)[0]:
                progress()
            text = pipe.read().decode("utf-8", "replace")
        # Reap only after removing the handlers, so that they never signal a reused process id.
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return text, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run_child(writer: int, parent: int, work: Callable[[], None], mask: set[int]) -> None:
    """Never returns. Signals and the parent's end kill it, because a reshard is crash-safe."""
    status = EXIT_ERROR
    try:
        signal.set_wakeup_fd(-1)
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        die_with_parent()
        if os.getppid() == parent:
            work()
            status = EXIT_OK
    except errors.BeanstalkdError as error:
        os.write(writer, str(error).encode())
        status = _CHILD_LOCKED if isinstance(error, errors.BinlogLockedError) else _CHILD_FAILED
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _log_level(top: Path) -> int:
    """Return INFO for a new folder, else WARNING, because the reshard may delay the start."""
    from beanstalkd_py.binlog.layout import LAYOUT, binlog_files

    new = not (top / LAYOUT).exists() and not binlog_files(top)
    return logging.INFO if new else logging.WARNING
