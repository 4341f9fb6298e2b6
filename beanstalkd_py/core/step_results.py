"""What a step of compacting a binlog or of emptying a tube says, and what comes after it."""

from __future__ import annotations

import enum
from typing import NamedTuple

from beanstalkd_py.core._core import lib


class Compacting(enum.IntEnum):
    """What comes after a step of a compaction."""

    DONE = lib.BS_COMPACT_DONE
    MORE = lib.BS_COMPACT_MORE
    WAIT = lib.BS_COMPACT_WAIT


class CompactStep(NamedTuple):
    """How far a compaction is: bytes of all files, and of what is needed in them."""

    outcome: Compacting
    last: int
    total_bytes: int
    alive_bytes: int


class Truncating(enum.IntEnum):
    """What comes after a step of emptying a tube."""

    DONE = lib.BS_TRUNCATE_DONE
    MORE = lib.BS_TRUNCATE_MORE
    WAIT = lib.BS_TRUNCATE_WAIT


class TruncateStep(NamedTuple):
    """What a step has removed. `full`: the binlog had no room for more."""

    outcome: Truncating
    removed: int
    generation: int
    full: bool = False


FREE_STATES = {"ready": 1, "buried": 3, "delayed": 4}
"""The states of jobs that no client has, with their numbers in csrc/jobs/job.h."""
