"""Numbers with their nouns, for messages."""

from __future__ import annotations


def counted(number: int, what: str = "job") -> str:
    """1 job, 2 jobs, 2 entries."""
    if number == 1:
        return f"{number} {what}"
    return f"{number} {what[:-1]}ies" if what.endswith("ry") else f"{number} {what}s"
