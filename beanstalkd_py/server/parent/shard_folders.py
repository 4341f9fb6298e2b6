"""The binlog folder of each worker, brought into the layout that was asked for.

Asked by the parent after its sockets listen and before a worker starts. A folder that is as wanted
costs a few looks at names; resharding happens in a child process of its own, so that the memory of
all those jobs goes with it. What the layout is and how it changes is known to `binlog`.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from beanstalkd_py import errors
from beanstalkd_py.binlog.lock_wait import locked
from beanstalkd_py.binlog.ownership import creating_as_owner_of
from beanstalkd_py.plural import counted
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.options import (
    AUTO_WORKERS,
    DEFAULT_FILE_SIZE,
    ServeOptions,
    new_workers,
)
from beanstalkd_py.server.process.exit_status import EXIT_ERROR, EXIT_OK
from beanstalkd_py.server.process.privileges import die_with_parent
from beanstalkd_py.symlinks import resolved

if TYPE_CHECKING:
    from beanstalkd_py.binlog.layout import FileLock, Layout

NEWS_S = 5.0

History = Mapping[str, Any]

STOPPING = (signal.SIGTERM, signal.SIGINT)

# How the child ended, beside EXIT_OK; its sentence comes through a pipe.
_CHILD_FAILED = 3
_CHILD_LOCKED = 4


@dataclass(frozen=True, slots=True)
class TakenFolders:
    """The folder of each worker, and the lock on what they lie in, if it is divided."""

    paths: list[str]
    lock: FileLock | None

    def close(self) -> None:
        """Gives up the lock. Otherwise the end of the process does."""
        if self.lock is not None:
            self.lock.close()


def with_workers(options: ServeOptions) -> ServeOptions:
    """The options with the number of workers that a start has now. Raises BinlogFolderError.

    Without --workers a folder keeps its layout, --colocate included unless that was given.
    """
    if options.workers != AUTO_WORKERS:
        return options
    from beanstalkd_py.binlog.layout import present_layout

    present = None if options.binlog_dir is None else present_layout(Path(options.binlog_dir))
    if present is None:
        return replace(options, workers=new_workers())
    colocate = present.colocate if options.colocate is None else options.colocate
    return replace(options, workers=present.workers, colocate=colocate)


_kept: list[TakenFolders] = []


def worker_folders(
    folder: str,
    workers: int,
    colocate: bytes | None = None,
    file_size: int = DEFAULT_FILE_SIZE,
    news: Callable[[], None] = lambda: None,
    history: History | None = None,
) -> list[str]:
    """The binlog folder of each worker, resharded first if need be; locked until the process ends.

    `folder` exists (check_binlog_folder); `file_size` is bytes. With one worker it is the folder
    itself, whose lock is the worker's to take. `news` is called every few seconds while it is
    resharded, `history` what an archiver is told (ServeOptions.history_rules): what has ended is
    archived before the files go that say so. Main thread only, before any other thread or event
    loop is started. Raises BinlogLockedError; BinlogFolderError; WorkerError with status 0 when a
    signal to stop came meanwhile.
    """
    taken = take_folders(folder, workers, colocate, file_size, news, history)
    _kept.append(taken)
    return taken.paths


def take_folders(
    folder: str,
    workers: int,
    colocate: bytes | None = None,
    file_size: int = DEFAULT_FILE_SIZE,
    news: Callable[[], None] = lambda: None,
    history: History | None = None,
) -> TakenFolders:
    """As worker_folders, but the lock can be given up."""
    from beanstalkd_py.binlog import layout as layouts

    top = resolved(folder)
    if workers == 1 and layouts.is_whole(top):
        return TakenFolders([str(top)], None)
    wanted = layouts.Layout.wanted(workers, colocate)
    for _ in range(2):
        lock = layouts.lock_top(top)
        if not is_settled(top, wanted):
            lock.close()
            _in_child(
                top, partial(reshard_here, top, wanted, file_size, _level(top), history), news
            )
            continue
        paths = [str(path) for path in layouts.folders_of(top, wanted)]
        if wanted != layouts.WHOLE:
            return TakenFolders(paths, lock)
        lock.remove()
        return TakenFolders(paths, None)
    raise locked(top)  # somebody else changes it as we do


def is_settled(top: Path, wanted: Layout) -> bool:
    """Whether this layout is in force and nothing is left to do."""
    from beanstalkd_py.binlog import layout as layouts

    if wanted == layouts.WHOLE:
        return layouts.is_whole(top)
    return (
        (top / layouts.LOCK).is_symlink()
        and not any(os.path.lexists(top / name) for name in (layouts.STAGING, layouts.STAGED))
        and layouts.read_layout(top) == wanted
        and not layouts.binlog_files(top)
        and all(path.is_dir() for path in layouts.folders_of(top, wanted))
    )


def reshard_here(
    top: Path, wanted: Layout, file_size: int, level: int, history: History | None = None
) -> None:
    """Reshards in this process, with lines at `level`. BinlogLockedError, BinlogFolderError."""
    from beanstalkd_py.binlog import layout as layouts
    from beanstalkd_py.binlog.permission import check_permission
    from beanstalkd_py.binlog.progress import progress_on_stderr
    from beanstalkd_py.binlog.reshard import reshard

    top = resolved(top)
    check_permission(top, writing=True)
    lock = layouts.lock_top(top)
    try:
        LOGGER.log(level, "binlog folder %s: resharding for %s", top, wanted)
        before = warn_of_history if history is None else partial(archive_before, history)
        with creating_as_owner_of(top):
            jobs = reshard(
                top, wanted, file_size, progress=progress_on_stderr(level), before=before
            )
    except BaseException:
        lock.close()
        raise
    if jobs < 0:
        LOGGER.log(level, "binlog folder %s: nothing to do", top)
    else:
        LOGGER.log(level, "binlog folder %s: resharded for %s; jobs: %d", top, wanted, jobs)
    if wanted == layouts.WHOLE:
        lock.remove()
    lock.close()


def warn_of_history(folders: list[Path]) -> None:
    """Says so if a history was kept of these folders, and what has ended may not get there."""
    from beanstalkd_py.binlog.layout import HISTORY_ID

    if any((folder / HISTORY_ID).exists() for folder in folders):
        LOGGER.warning(
            "a history was kept of this binlog; jobs that have ended and are not there yet will"
            " not get there, because the new files do not tell of them (--history)"
        )


def archive_before(history: History, folders: list[Path]) -> None:
    """Archives what has ended in these folders, which are locked, before they change.

    `history` is as in worker_folders. BinlogFolderError: it cannot be used.
    """
    from beanstalkd_py.archiver.archive import archive_rest
    from beanstalkd_py.archiver.store_settings import StoreSettings, writing_history

    try:
        rules = StoreSettings.from_message(history)
        with writing_history(rules.folder):
            jobs = archive_rest(rules, folders, LOGGER.error)
    except (errors.StoreError, OSError) as error:
        raise errors.BinlogFolderError(
            f"finished jobs have to go to the history before the folder is changed: {error};"
            " mend that, start with as many --workers as before, or leave out --history"
        ) from error
    else:
        LOGGER.info("archived %s that ended", counted(jobs))


# --- the child ------------------------------------------------------------------------------------


def _in_child(top: Path, work: Callable[[], None], news: Callable[[], None]) -> None:
    """Fork without exec is harmless here: no thread, no event loop, no core in this process yet."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    parent = os.getpid()
    # A signal that comes before both know what to do with it waits until they do.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    child = os.fork()
    if child == 0:
        _run_child(writer, parent, work, mask)
    os.close(writer)
    text, status = _wait_for(child, reader, mask, news)
    if status == _CHILD_LOCKED:
        raise errors.BinlogLockedError(text)
    if -status in STOPPING:
        stopped = "stopped while resharding, which the next start does again"
        raise errors.WorkerError(stopped, EXIT_OK)
    if status != EXIT_OK:
        text = text or f"resharding binlog folder {top} ended with status {status}"
        raise errors.BinlogFolderError(text)


def _wait_for(child: int, reader: int, mask: set[int], news: Callable[[], None]) -> tuple[str, int]:
    """What it had to say, and its status, negative for a signal; ours to stop are its, too."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        os.kill(child, signal.SIGTERM)

    previous = {number: signal.signal(number, pass_on) for number in STOPPING}
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        with os.fdopen(reader, "rb") as pipe:
            news()
            while not select.select([pipe], [], [], NEWS_S)[0]:
                news()
            text = pipe.read().decode("utf-8", "replace")
        # Not reaped yet, so its id is its own for as long as the handlers are there.
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return text, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run_child(writer: int, parent: int, work: Callable[[], None], mask: set[int]) -> None:
    """Never returns. It ends at any signal and with its parent: a crash at any point is allowed."""
    status = EXIT_ERROR
    try:
        signal.set_wakeup_fd(-1)
        for number in STOPPING:
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


def _level(top: Path) -> int:
    """A start that may take long says why, whatever the verbosity, unless the folder is new."""
    from beanstalkd_py.binlog.layout import LAYOUT, binlog_files

    new = not (top / LAYOUT).exists() and not binlog_files(top)
    return logging.INFO if new else logging.WARNING
