"""Looking at processes from outside, and waiting for what becomes of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

PROMPT_S = 2.0


def children(pid: int) -> list[int]:
    """The processes that a process has started, in that order."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def alive(pid: int) -> bool:
    """Whether a process still does anything (a zombie does not)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def eventually(condition: Callable[[], bool], limit_s: float = PROMPT_S) -> bool:
    """Whether the condition comes to hold within the time."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return condition()
