"""Records that clients return, besides those of greenstalk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ListedState = Literal["ready", "delayed", "buried", "reserved", "any"]
"""The states that `list_jobs` accepts."""


JobEnd = Literal["deleted", "buried"]
"""The results of `wait`."""


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job of `list_jobs`: the fields of `stats-job`, times in seconds, and the body's size."""

    id: int
    state: str
    pri: int
    age: int
    delay: int
    ttr: int
    time_left: int
    reserves: int
    timeouts: int
    releases: int
    buries: int
    kicks: int
    bytes: int


@dataclass(frozen=True, slots=True)
class JobPage:
    """A page of `list-jobs`; `next_after` is 0 on the last page."""

    jobs: list[ListedJob]
    next_after: int
