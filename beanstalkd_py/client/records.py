"""Records that clients return, besides those of greenstalk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import greenstalk
from greenstalk import TBody

ListedState = Literal["ready", "delayed", "buried", "reserved", "any"]
"""The states that `list_jobs` accepts."""

JobEnd = Literal["deleted", "buried"]
"""The results of `wait`."""


class BatchJob(greenstalk.Job[TBody]):
    """A job of `reserve_batch`, with its tube."""

    def __init__(self, id: int, body: TBody, tube: str) -> None:
        # mypy compares the types of str and bytes bodies with an unbound TBody.
        super().__init__(id, body)  # type: ignore[arg-type]
        self.tube = tube

    def __repr__(self) -> str:
        return f"BatchJob(id={self.id!r}, body={self.body!r}, tube={self.tube!r})"


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job of `list_jobs`: the fields of `stats-job`, times in seconds, and its body's size."""

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
