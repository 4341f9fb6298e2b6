"""The result of one check."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import partial

from beanstalkd_py.plural import counted

MIB = 1 << 20
GIB = 1 << 30


class Verdict(enum.StrEnum):
    """WARNING may become a problem. PROBLEM does not work, or can lose jobs.

    UNKNOWN: the check is not possible here.
    """

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """`found` is the state; `advice` is the remedy, or empty for OK."""

    verdict: Verdict
    check: str
    found: str
    advice: str = ""


ok = partial(Finding, Verdict.OK)
warning = partial(Finding, Verdict.WARNING)
problem = partial(Finding, Verdict.PROBLEM)
unknown = partial(Finding, Verdict.UNKNOWN)


def size_text(size: int) -> str:
    if size >= GIB:
        return f"{size / GIB:.1f} GiB"
    return f"{size / MIB:.1f} MiB" if size >= MIB else counted(size, "byte")
