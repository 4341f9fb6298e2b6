"""Counts with nouns for messages."""

from __future__ import annotations


def counted(number: int, noun: str = "job") -> str:
    """Return "1 job", "2 jobs", "2 entries" or "2 policies"."""
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith(("ry", "cy")) else f"{number} {noun}s"
