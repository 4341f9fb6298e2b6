"""The binlog folder of each worker, brought into the layout that was asked for.

Asked by the parent after its sockets listen and before a worker starts. A folder that is as wanted
costs a few looks at names; resharding happens in a child process of its own, so that the memory of
all those jobs goes with it. What the layout is and how it changes is known to `binlog`.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from beanstalkd_py import errors
from beanstalkd_py.server.exits import EXIT_ERROR, EXIT_OK
from beanstalkd_py.server.logs import LOGGER
from beanstalkd_py.server.options import DEFAULT_FILE_SIZE

if TYPE_CHECKING:
    from beanstalkd_py.binlog.layout import FileLock, Layout

STOPPING = (signal.SIGTERM, signal.SIGINT)
PR_SET_PDEATHSIG = 1

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


_kept: list[TakenFolders] = []


def worker_folders(
    folder: str, workers: int, colocate: bytes | None = None, file_size: int = DEFAULT_FILE_SIZE
) -> list[str]:
    """The binlog folder of each worker, resharded first if need be; locked until the process ends.

    `folder` exists (check_binlog_folder); `file_size` is bytes. With one worker it is the folder
    itself, whose lock is the worker's to take. Main thread only, before any other thread or event
    loop is started. Raises BinlogLockedError; BinlogFolderError; WorkerError with status 0 when a
    signal to stop came meanwhile.
    """
    taken = take_folders(folder, workers, colocate, file_size)
    _kept.append(taken)
    return taken.paths


def take_folders(
    folder: str, workers: int, colocate: bytes | None = None, file_size: int = DEFAULT_FILE_SIZE
) -> TakenFolders:
    """As worker_folders, but the lock can be given up."""
    from beanstalkd_py.binlog import layout as layouts

    top = Path(folder)
    if workers == 1 and layouts.is_whole(top):
        return TakenFolders([folder], None)
    wanted = layouts.Layout.wanted(workers, colocate)
    for _ in range(2):
        lock = layouts.lock_top(top)
        if not is_settled(top, wanted):
            lock.close()
            _in_child(top, wanted, file_size)
            continue
        paths = [str(path) for path in layouts.folders_of(top, wanted)]
        if wanted != layouts.WHOLE:
            return TakenFolders(paths, lock)
        lock.remove()
        return TakenFolders(paths, None)
    raise layouts.locked(top)  # somebody else changes it as we do


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


def reshard_here(top: Path, wanted: Layout, file_size: int, level: int) -> None:
    """Reshards in this process, with lines at `level`. BinlogLockedError, BinlogFolderError."""
    from beanstalkd_py.binlog import layout as layouts
    from beanstalkd_py.binlog.progress import progress_on_stderr
    from beanstalkd_py.binlog.resharding import reshard

    lock = layouts.lock_top(top)
    try:
        LOGGER.log(level, "binlog folder %s: resharding for %s", top, wanted)
        jobs = reshard(top, wanted, file_size, progress=progress_on_stderr(level))
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


# --- the child ------------------------------------------------------------------------------------


def _in_child(top: Path, wanted: Layout, file_size: int) -> None:
    """Fork without exec is harmless here: no thread, no event loop, no core in this process yet."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    parent = os.getpid()
    # A signal that comes before both know what to do with it waits until they do.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    child = os.fork()
    if child == 0:
        _run_child(writer, parent, top, wanted, file_size, mask)
    os.close(writer)
    text, status = _wait_for(child, reader, mask)
    if status == _CHILD_LOCKED:
        raise errors.BinlogLockedError(text)
    if -status in STOPPING:
        stopped = "stopped while resharding, which the next start does again"
        raise errors.WorkerError(stopped, EXIT_OK)
    if status != EXIT_OK:
        text = text or f"resharding binlog folder {top} ended with status {status}"
        raise errors.BinlogFolderError(text)


def _wait_for(child: int, reader: int, mask: set[int]) -> tuple[str, int]:
    """What it had to say, and its status, negative for a signal; ours to stop are its, too."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        os.kill(child, signal.SIGTERM)

    previous = {number: signal.signal(number, pass_on) for number in STOPPING}
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        with os.fdopen(reader, "rb") as pipe:
            text = pipe.read().decode("utf-8", "replace")
        # Not reaped yet, so its id is its own for as long as the handlers are there.
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return text, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run_child(
    writer: int, parent: int, top: Path, wanted: Layout, file_size: int, mask: set[int]
) -> None:
    """Never returns. It ends at any signal and with its parent: a crash at any point is allowed."""
    status = EXIT_ERROR
    try:
        signal.set_wakeup_fd(-1)
        for number in STOPPING:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == parent:
            reshard_here(top, wanted, file_size, _level(top))
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
