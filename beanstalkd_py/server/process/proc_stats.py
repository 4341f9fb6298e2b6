"""CPU time and memory of a process, from proc(5)."""

from __future__ import annotations

import os
from dataclasses import dataclass

TICKS_PER_S: int = os.sysconf("SC_CLK_TCK")
PAGE_BYTES: int = os.sysconf("SC_PAGE_SIZE")

# Fields of /proc/PID/stat, counted after the name.
_TIMES = slice(11, 15)
_RESIDENT_PAGES = 21


@dataclass(frozen=True, slots=True)
class Usage:
    """Clock ticks in user and system mode, of the process and of its ended children; bytes."""

    user: int = 0
    system: int = 0
    ended_user: int = 0
    ended_system: int = 0
    resident_bytes: int = 0

    @property
    def cpu_s(self) -> float:
        return (self.user + self.system) / TICKS_PER_S


def process_usage(pid: int) -> Usage:
    """Return the usage of a process; all zeros if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as file:  # noqa: PTH123
            text = file.read()
    except OSError:
        return Usage()
    # The name is in parentheses and may contain spaces and parentheses.
    fields = text.rpartition(")")[2].split()
    user, system, ended_user, ended_system = map(int, fields[_TIMES])
    resident_bytes = int(fields[_RESIDENT_PAGES]) * PAGE_BYTES
    return Usage(user, system, ended_user, ended_system, resident_bytes)
