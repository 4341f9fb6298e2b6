"""The folders of binlog and history before anything is read: are they there, and usable.

Asked by the parent, so that the usual mistakes are told at once and each in its own words. Whether
another process holds the folder only the worker can tell, by taking its lock.
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
    """Raises BinlogFolderError if this process could not keep a binlog there."""
    if not folder:
        raise errors.BinlogFolderError("option -b: the name of the binlog folder is empty")
    trouble = _trouble_with(folder)
    if trouble is not None:
        raise errors.BinlogFolderError(f"binlog folder {folder} {trouble}")
    check_permission(Path(folder), writing=True)


def check_history_folder(folder: str, binlog_folder: str) -> None:
    """Makes the folder if only it is missing. HistoryFolderError if it could not be a store.

    A new folder has the owner of the binlog folder.
    """
    if not folder:
        raise errors.HistoryFolderError("option --history: the name of the folder is empty")
    if not os.path.lexists(folder):
        with contextlib.suppress(OSError), creating_as_owner_of(binlog_folder):
            Path(folder).mkdir(mode=0o750)
    trouble = _trouble_with(folder)
    if trouble is not None:
        raise errors.HistoryFolderError(f"history folder {folder} {trouble}")
    _check_links(symlinks.resolved(folder))


def _check_links(store: Path) -> None:
    """What is further below is looked at by the archiver, which does not open such a store."""
    from beanstalkd_py.history.files.layout import COMMIT_LOG, CONSUME_QUEUE, INDEX

    for name in (COMMIT_LOG, CONSUME_QUEUE, INDEX):
        try:
            os.close(symlinks.open_folder(store / name))
        except OSError as error:
            if error.errno == symlinks.UNTRUSTED:
                text = f"cannot use history folder {store}: {error.strerror}"
                raise errors.HistoryFolderError(text) from error


def _trouble_with(folder: str) -> str | None:
    """How the sentence about an unusable folder goes on."""
    forbidden = f"is not permitted to user {os.geteuid()}, who must read, write and enter it"
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
