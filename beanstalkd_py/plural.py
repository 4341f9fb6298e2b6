"""Counts with nouns for messages."""

from __future__ import annotations


def counted(number: int, noun: str = "job") -> str:
    """Return "1 job", "2 jobs", "2 entries", "2 policies" or "2 copies"."""
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith(("ry", "cy", "py")) else f"{number} {noun}s"
