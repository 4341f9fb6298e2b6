"""Wait a moment for the lock of another process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from beanstalkd_py import errors

if TYPE_CHECKING:
    from pathlib import Path

LOCK_TIMEOUT_S = 1.0
"""A killed predecessor may still be exiting."""
LOCK_STEP_S = 0.01


def retry_while_locked(take: Callable[[], None], timeout_s: float = LOCK_TIMEOUT_S) -> None:
    """Call `take` until it stops raising BinlogLockedError, for at most `timeout_s` seconds."""
    deadline_mono = time.monotonic() + timeout_s
    while True:
        try:
            return take()
        except errors.BinlogLockedError:
            if time.monotonic() > deadline_mono:
                raise
        time.sleep(LOCK_STEP_S)


def locked_error(folder: str | Path) -> errors.BinlogLockedError:
    return errors.BinlogLockedError(
        f"binlog folder {folder} is locked by another process; is a server running on it?"
    )
