"""Writing to a folder as its owner does."""

from __future__ import annotations

import os
from pathlib import Path


def become_owner(folder: Path) -> None:
    """What root writes there the server could not read."""
    if os.geteuid() == 0:
        status = folder.stat()
        os.setegid(status.st_gid)
        os.seteuid(status.st_uid)
