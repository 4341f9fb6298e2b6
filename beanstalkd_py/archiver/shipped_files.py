"""The file `shipped` of a binlog folder: the archiver keeps done files until they were shipped.

It is a JSON object: folder identity (folder_identity.py) to the number of the last file that
`pipeline ship` has copied. A folder that is not in it, for example after resharding, keeps all its
files. The server removes `shipped` if the done files exceed its limit.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from pathlib import Path

from beanstalkd_py import symlinks
from beanstalkd_py.binlog.layout import HIGHEST_NUMBER, SHIPPED
from beanstalkd_py.binlog.ownership import creating_as_owner_of
from beanstalkd_py.history.files.layout import write_file
from beanstalkd_py.regular_file import read_regular

_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


def unshipped_from(top: Path, identity: str) -> int:
    """Return the number of the first file to keep; `top` is above the shards. Raises OSError."""
    try:
        text = read_regular(top / SHIPPED)
    except FileNotFoundError:
        return HIGHEST_NUMBER + 1
    try:
        return int(json.loads(text)[identity]) + 1
    except (ValueError, TypeError, KeyError, OverflowError):
        return 0


def record_shipped(top: Path, numbers: Mapping[str, int]) -> None:
    """Replace the file; on disk when this returns.

    Without a folder that has an identity, no archiver needs it, so `top` may be read-only. Raises
    OSError.
    """
    try:
        with creating_as_owner_of(top):
            write_file(top / SHIPPED, json.dumps(numbers).encode() + b"\n")
    except OSError as error:
        if numbers or error.errno not in _READ_ONLY:
            raise


def remove_shipped(top: Path) -> bool:
    """Remove the file; return whether there was one. Raises OSError."""
    try:
        symlinks.remove(top / SHIPPED)
    except FileNotFoundError:
        return False
    return True
