"""What one check has found, and sizes and lists in its words."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from beanstalkd_py.plural import counted

MIB = 1 << 20
GIB = 1 << 30


class Verdict(enum.StrEnum):
    """How bad it is; UNKNOWN: the check could not be made."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """`found` says what is so, `advice` what to do about it: nothing if all is well."""

    check: str
    verdict: Verdict
    found: str
    advice: str = ""


def ok(check: str, found: str) -> Finding:
    """All is well."""
    return Finding(check, Verdict.OK, found)


def warning(check: str, found: str, advice: str) -> Finding:
    """It works, but something can become a problem."""
    return Finding(check, Verdict.WARNING, found, advice)


def problem(check: str, found: str, advice: str) -> Finding:
    """It does not work, or jobs can be lost."""
    return Finding(check, Verdict.PROBLEM, found, advice)


def unknown(check: str, found: str, advice: str = "") -> Finding:
    """The check could not be made."""
    return Finding(check, Verdict.UNKNOWN, found, advice)


def size_text(size: int) -> str:
    """Bytes for people."""
    if size >= GIB:
        return f"{size / GIB:.1f} GiB"
    return f"{size / MIB:.1f} MiB" if size >= MIB else counted(size, "byte")
