"""A folder that another process has locked: waiting a moment for it, and saying so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from beanstalkd_py import errors

if TYPE_CHECKING:
    from pathlib import Path

LOCK_PATIENCE_S = 1.0
"""A predecessor that was killed may still be leaving."""
LOCK_STEP_S = 0.01


def patiently(take: Callable[[], None], patience_s: float = LOCK_PATIENCE_S) -> None:
    """Calls `take` until it no longer raises BinlogLockedError, or has for so long."""
    deadline_mono = time.monotonic() + patience_s
    while True:
        try:
            return take()
        except errors.BinlogLockedError:
            if time.monotonic() > deadline_mono:
                raise
        time.sleep(LOCK_STEP_S)


def locked(folder: str | Path) -> errors.BinlogLockedError:
    """The sentence about a folder that is in use."""
    return errors.BinlogLockedError(
        f"binlog folder {folder} is locked by another process; is a server running on it?"
    )
