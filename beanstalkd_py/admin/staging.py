"""Staged copies: jobs with a delay of decades, which encodes their originals.

A move changes two tubes, which the protocol cannot do atomically. It puts a staged copy, deletes
the original, and then reveals the copy (`move`). A killed process leaves staged copies behind.
The next move recovers them by the bits of their delay:

    bit 31       1: more than 68 years, which no user requests
    bits 30, 29  the copy's final state: 0 ready, 1 delayed, 2 buried; 3 is not a staged copy
    bits 28-0    low bits of the original's id; its high bits are those of the copy, or one less
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from beanstalkd_py.admin.statistics import DELAYED, FREE_STATES, JobStats

STAGED = 1 << 31
_STATE_SHIFT = 29
_ID_MASK = (1 << _STATE_SHIFT) - 1

FAR_FUTURE_S = 2**32 - 1
"""The delay of a job that will be buried. Its bits are not those of a staged copy."""


@dataclass(frozen=True)
class StagedCopy:
    copy: JobStats
    original: int
    state: str


def staging_delay_s(original: int, state: str) -> int:
    return STAGED | FREE_STATES.index(state) << _STATE_SHIFT | original & _ID_MASK


def find_staged_copies(jobs: Iterable[JobStats]) -> list[StagedCopy]:
    copies = []
    for job in jobs:
        state = job.delay_s >> _STATE_SHIFT & 3
        if job.state != DELAYED or job.delay_s < STAGED or state >= len(FREE_STATES):
            continue
        original = job.id & ~_ID_MASK | job.delay_s & _ID_MASK
        if original >= job.id:
            original -= _ID_MASK + 1
        copies.append(StagedCopy(job, original, FREE_STATES[state]))
    return copies
