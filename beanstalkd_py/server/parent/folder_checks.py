"""Checks the folders of binlog and history at the start, for precise error messages.

The worker detects a second server on the same folder by the lock.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from beanstalkd_py import errors, symlinks
from beanstalkd_py.binlog.ownership import creating_as_owner_of
from beanstalkd_py.binlog.permission import check_permission


def check_binlog_folder(folder: str) -> None:
    """Raise BinlogFolderError if this process cannot use the folder for a binlog."""
    if not folder:
        raise errors.BinlogFolderError("option -b: the path is empty; give a folder")
    problem = _problem_with(folder)
    if problem is not None:
        raise errors.BinlogFolderError(f"binlog folder {folder} {problem}")
    check_permission(Path(folder), writing=True)


def check_history_folder(folder: str, binlog_folder: str) -> None:
    """Create the folder, with the owner of the binlog folder, if its parent folder exists.

    Raises HistoryFolderError if this process cannot use the folder for a store.
    """
    if not folder:
        raise errors.HistoryFolderError("option --history: the path is empty; give a folder")
    store = symlinks.resolved(folder)
    _check_links(store)
    if not os.path.lexists(store):
        with contextlib.suppress(OSError), creating_as_owner_of(binlog_folder):
            symlinks.make_folder(store, 0o750)
    problem = _problem_with(folder)
    if problem is not None:
        raise errors.HistoryFolderError(f"history folder {folder} {problem}")


def _check_links(store: Path) -> None:
    # The archiver checks the files below these folders when it opens the store.
    from beanstalkd_py.history.files.layout import COMMIT_LOG, CONSUME_QUEUE, INDEX

    for name in (COMMIT_LOG, CONSUME_QUEUE, INDEX):
        try:
            os.close(symlinks.open_folder(store / name))
        except OSError as error:
            if error.errno == symlinks.UNTRUSTED:
                text = f"cannot use history folder {store}: {error.strerror}"
                raise errors.HistoryFolderError(text) from error


def _problem_with(folder: str) -> str | None:
    forbidden = f"is not accessible to user {os.geteuid()}; it needs permissions rwx"
    try:
        mode = Path(folder).stat().st_mode
    except FileNotFoundError:
        return "does not exist; create it first"
    except PermissionError:
        return forbidden
    except OSError as error:
        return f"cannot be used: {error.strerror}"
    if not stat.S_ISDIR(mode):
        return "is not a directory"
    return None if os.access(folder, os.R_OK | os.W_OK | os.X_OK) else forbidden
