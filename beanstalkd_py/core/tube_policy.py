"""A tube policy: `bs_policy` of csrc/api/policies.h. Imports nothing of the core."""

from __future__ import annotations

from typing import NamedTuple

UINT32_MAX = 2**32 - 1
BURY = "bury"
DELETE = "delete"
MOVE = "move:"
"""Before the name of a tube."""


class TubePolicy(NamedTuple):
    """The policy of the tubes whose names match a shell pattern.

    A named tuple, because messages between processes carry a thousand of them in few bytes.
    `max_bytes` is of bodies, times are seconds; 0 is none, except for `max_delay`.
    `then` is BURY, DELETE, or MOVE and a tube.
    """

    pattern: str
    max_jobs: int = 0
    max_bytes: int = 0
    default_ttr: int = 0
    max_delay: int = UINT32_MAX
    max_reserves: int = 0
    then: str = BURY
