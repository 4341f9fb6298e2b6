"""The lock around appends: who has it decides the order of the log.

"mutex" sleeps while another thread has it; "spin" tries again and again, which is quicker when
appends are short and there is a core for each thread.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Protocol


class PutLock(Protocol):
    """What a lock is here."""

    def __enter__(self) -> bool: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class SpinLock:
    """Never sleeps; lets other threads of the interpreter run between two tries."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> bool:
        while not self._lock.acquire(blocking=False):
            time.sleep(0)
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()


def make_put_lock(kind: str) -> PutLock:
    """The lock that the option names."""
    return SpinLock() if kind == "spin" else threading.Lock()
