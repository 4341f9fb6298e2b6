"""Results of one step of a compaction or a truncation."""

from __future__ import annotations

import enum
from typing import NamedTuple

from beanstalkd_py.core._core import lib


class StepOutcome(enum.IntEnum):
    """Whether and when another step follows."""

    DONE = lib.BS_STEP_DONE
    MORE = lib.BS_STEP_MORE
    WAIT = lib.BS_STEP_WAIT


class CompactStep(NamedTuple):
    """The bytes of all files, and of these the bytes needed."""

    outcome: StepOutcome
    last: int
    total_bytes: int
    alive_bytes: int


class TruncateStep(NamedTuple):
    """`full`: the binlog had no space for more."""

    outcome: StepOutcome
    removed: int
    generation: int
    full: bool = False


FREE_STATES = {"ready": 1, "buried": 3, "delayed": 4}
"""The states of jobs that no client has, with their numbers in csrc/jobs/job.h."""
