"""The identity of a binlog folder: the first part of the UNIQ_KEY of its messages.

File numbers begin anew in a folder that was emptied or resharded, so they do not identify an entry
by themselves. The identity is in the file `history.id` beside the binlog files.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from beanstalkd_py.binlog.layout import HISTORY_ID
from beanstalkd_py.binlog.ownership import creating_as_owner_of
from beanstalkd_py.history.files.layout import write_file
from beanstalkd_py.regular_file import read_regular

_BYTES = 8
_TEXT = re.compile(r"[0-9a-f]{16}-\d{1,3}")


def identity_of(folder: Path, shard: int) -> str:
    """Return 16 hexadecimal digits and the shard number; on disk when this returns. Raises OSError.

    A folder without a valid identity gets a new one, and all of its entries count as new.
    """
    return known_identity(folder) or new_identity(folder, shard)


def known_identity(folder: Path) -> str:
    """Return the identity of a folder, empty if it has no valid one. Raises OSError."""
    try:
        text = read_regular(folder / HISTORY_ID).decode("ascii", "replace").strip()
    except FileNotFoundError:
        text = ""
    return text if _TEXT.fullmatch(text) else ""


def new_identity(folder: Path, shard: int) -> str:
    """Replace the folder's identity; on disk when this returns. Raises OSError."""
    text = f"{os.urandom(_BYTES).hex()}-{shard}"
    set_identity(folder, text)
    return text


def set_identity(folder: Path, text: str) -> None:
    """Give a folder this identity; on disk when this returns. Raises OSError."""
    if text != known_identity(folder):
        with creating_as_owner_of(folder):
            write_file(folder / HISTORY_ID, text.encode() + b"\n")
