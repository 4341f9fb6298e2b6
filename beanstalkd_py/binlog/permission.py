"""Check that this process may open the files of a binlog folder before anything is changed.

A file that cannot be opened is not damaged; a start without it would lose jobs. Shards and files
that are symbolic links of another user are refused, too (symlinks.py).
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from beanstalkd_py import errors, symlinks
from beanstalkd_py.binlog.layout import LOCK, TOP_LOCK, binlog_files, reading, shard_folders

_READ = os.R_OK
_WRITE = os.R_OK | os.W_OK


def check_permission(top: Path, writing: bool) -> None:
    """Check every binlog file of the folder and its shards, and with `writing` the locks.

    Raises BinlogFolderError with the file, its owner and a remedy.
    """
    top = symlinks.resolved(top)
    with reading(top):
        try:
            for folder in [top, *shard_folders(top)]:
                os.close(symlinks.open_folder(folder))
                for path in binlog_files(folder):
                    _check(path, _READ)
                    _check_link(path)
                if writing:
                    _check(folder / LOCK, _WRITE)
            if writing:
                _check(top / TOP_LOCK, _WRITE)
        except PermissionError as error:
            raise _refused(Path(error.filename or top)) from error


def _check_link(path: Path) -> None:
    if not path.is_symlink():
        return
    try:
        os.close(symlinks.open_linked(path, os.O_PATH))
    except OSError as error:
        if error.errno == symlinks.UNTRUSTED:
            raise


def _check(path: Path, wanted: int) -> None:
    """Ignore missing files and dangling links."""
    if not os.access(path, wanted, effective_ids=True) and path.exists():
        raise _refused(path)


def _refused(path: Path) -> errors.BinlogFolderError:
    user = _name(os.geteuid())
    try:
        status = path.stat()
    except OSError:
        return errors.BinlogFolderError(
            f"cannot open {path}: Permission denied to user {user}; run as the owner of the folder"
        )
    mode = status.st_mode & 0o7777
    return errors.BinlogFolderError(
        f"cannot open {path}: Permission denied to user {user}; it belongs to user"
        f' {_name(status.st_uid)} with mode {mode:04o}; run "chown {user} {path}", or run as'
        f" {_name(status.st_uid)}"
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
