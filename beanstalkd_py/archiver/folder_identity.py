"""The identity of a binlog folder, which begins the UNIQ_KEY of messages that come from it.

File numbers alone would not do: they begin anew in a folder that was emptied or made by a reshard,
and what is archived under them already is something else. So the identity lies beside the files,
as `history.id`, and goes with them. Must not know what is in the files or in the store.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from beanstalkd_py.binlog.layout import HISTORY_ID
from beanstalkd_py.binlog.ownership import creating_as_owner_of
from beanstalkd_py.history.files.layout import write_file

_BYTES = 8
_TEXT = re.compile(r"[0-9a-f]{16}-\d{1,3}")


def identity_of(folder: Path, shard: int) -> str:
    """16 hexadecimal digits and the number of the shard; on disk when this returns.

    It is made up if the folder has none yet, or none that can be understood: then all that the
    folder has counts as new. OSError.
    """
    try:
        text = (folder / HISTORY_ID).read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        text = ""
    return text if _TEXT.fullmatch(text) else new_identity(folder, shard)


def new_identity(folder: Path, shard: int) -> str:
    """Another one than it has had, if any; on disk when this returns. OSError."""
    text = f"{os.urandom(_BYTES).hex()}-{shard}"
    with creating_as_owner_of(folder):
        write_file(folder / HISTORY_ID, text.encode() + b"\n")
    return text
