"""Result of one check."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from beanstalkd_py.plural import counted

MIB = 1 << 20
GIB = 1 << 30


class Verdict(enum.StrEnum):
    """WARNING: may become a problem. PROBLEM: does not work, or can lose jobs.

    UNKNOWN: the check is not possible.
    """

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """`found` is the state, `advice` the remedy, empty for OK."""

    check: str
    verdict: Verdict
    found: str
    advice: str = ""


def ok(check: str, found: str) -> Finding:
    return Finding(check, Verdict.OK, found)


def warning(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Verdict.WARNING, found, advice)


def problem(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Verdict.PROBLEM, found, advice)


def unknown(check: str, found: str, advice: str = "") -> Finding:
    return Finding(check, Verdict.UNKNOWN, found, advice)


def size_text(size: int) -> str:
    if size >= GIB:
        return f"{size / GIB:.1f} GiB"
    return f"{size / MIB:.1f} MiB" if size >= MIB else counted(size, "byte")
