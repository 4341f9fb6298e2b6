"""Child processes, and waiting for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

PROMPT_S = 2.0


def children(pid: int) -> list[int]:
    """Return the ids of child processes in the order of their start."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def eventually(condition: Callable[[], bool], limit_s: float = PROMPT_S) -> bool:
    """Wait until the condition holds; return whether it does within the limit."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return condition()


def slowness() -> float:
    """Return how many times slower this machine is now than where time limits were measured.

    At least 1. There a million rounds of an empty loop take 20 ms.
    """
    took = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(1_000_000):
            pass
        took.append(time.perf_counter() - start)
    return max(1.0, sorted(took)[2] / 0.02)
