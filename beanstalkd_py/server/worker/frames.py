"""Frames that Python packs and executes: msgpack arrays of a kind, a session and arguments.

The core executes all other frames (BS_FRAME_ of csrc/api/server.h).
"""

from __future__ import annotations

import enum
from typing import Any

Frame = list[Any]


class Kind(enum.IntEnum):
    """The first element of a frame. Brackets show the arguments after the session."""

    # From a home worker to a shard.
    HEAD = 2  # [token]
    CLAIM = 3  # [token, pri]
    WAIT = 4  # [token]
    TAKE = 5  # [token]
    CANCEL = 6  # [token]
    RESERVE = 7  # [token, poll]
    HOLDS = 8  # []: the number of reserved jobs, and capacity for one more connection
    TUBES = 10  # []
    MOVE = 11  # no session; [all but the descriptor of a Migration], with the descriptor

    # From a shard to a home worker.
    HEAD_IS = 21  # [token, ready, any, soon, pri, job, holds]
    LOST = 22  # [token]: the response to CLAIM or TAKE without a job
    CANCELLED = 24  # [token, stopped]
    HOLDS_IS = 25  # [count, has_capacity]
    TUBES_ARE = 26  # [[number, name], ...]
