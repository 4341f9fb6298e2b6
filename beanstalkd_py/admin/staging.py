"""Copies that nobody sees yet: jobs put with a delay of decades that says what they are copies of.

A move is two changes in two tubes, and the protocol cannot make both at once. So a copy is put
hidden, the original is deleted, and only then does the copy appear (`moving`). A process that is
killed in between leaves hidden copies. Their delay says what to do about them:

    bit 31       1: more than 68 years, which nobody asks for
    bits 30, 29  the state it is to have: 0 ready, 1 delayed, 2 buried; 3 is no hidden copy
    bits 28-0    the end of the original's id, whose beginning is that of the copy or one less
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from beanstalkd_py.admin.statistics import DELAYED, FREE_STATES, JobStats

HIDDEN = 1 << 31
_STATE_SHIFT = 29
_ID_MASK = (1 << _STATE_SHIFT) - 1

FAR_FUTURE_S = 2**32 - 1
"""A delay for a job that waits to be buried; by its bits it is no hidden copy."""


@dataclass(frozen=True)
class HiddenCopy:
    """A hidden copy that was found: its id, its original's, and the state it is to have."""

    copy: JobStats
    original: int
    state: str


def hidden_delay_s(original: int, state: str) -> int:
    """The delay of a hidden copy."""
    return HIDDEN | FREE_STATES.index(state) << _STATE_SHIFT | original & _ID_MASK


def hidden_copies(jobs: Iterable[JobStats]) -> list[HiddenCopy]:
    """Those of the jobs that are hidden copies."""
    found = []
    for job in jobs:
        state = job.delay_s >> _STATE_SHIFT & 3
        if job.state != DELAYED or job.delay_s < HIDDEN or state >= len(FREE_STATES):
            continue
        original = job.id & ~_ID_MASK | job.delay_s & _ID_MASK
        if original >= job.id:
            original -= _ID_MASK + 1
        found.append(HiddenCopy(job, original, FREE_STATES[state]))
    return found
