"""The tubes of all workers for the administrator: one worker's part, and what all parts make.

A tube is with one worker, so no two parts have the same. Must not know how a worker is asked, nor
what is in a part: see control.tubes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from beanstalkd_py.core.core import Core

PART_BYTES = 60_000
"""Of one message, which has 64 KiB at most."""

Ask = Callable[[dict[str, Any]], dict[str, Any]]


def part(core: Core, first: int) -> dict[str, Any]:
    """Tubes from slot `first` on: {"packed", "next"}; next is None at the end."""
    packed, following = core.tube_stats(first, PART_BYTES)
    return {"packed": packed, "next": following}


def packed_pages(workers: Sequence[int], ask: Callable[[int], Ask]) -> Iterator[bytes]:
    """All tubes of these workers in pieces for control.tubes.rows. Raises ControlError."""
    for worker in workers:
        first: int | None = 0
        while first is not None:
            answer = ask(worker)({"do": "tubes", "first": first})
            first = answer["next"]
            yield answer["packed"]
