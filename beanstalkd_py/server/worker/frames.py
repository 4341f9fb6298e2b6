"""Frames between workers: msgpack arrays of the kind, the home's session number and arguments.

Frames marked C are written and executed by the core (csrc/links/frames.h).
"""

from __future__ import annotations

import enum
from typing import Any

Frame = list[Any]


class Kind(enum.IntEnum):
    """The first element of a frame. Brackets show the arguments after the session."""

    # From a home worker to a shard.
    FEED = 0  # C [bytes]: command lines for the proxy
    CLOSE = 1  # C []: the connection is closed
    HEAD = 2  # [token]
    CLAIM = 3  # [token, pri]
    WAIT = 4  # [token]
    TAKE = 5  # [token]
    CANCEL = 6  # [token]
    RESERVE = 7  # [token, poll]
    HOLDS = 8  # []: the number of reserved jobs, and capacity for one more connection
    COUNT = 9  # C no session; [tube, users, watchers, holds, number]: the home's references
    TUBES = 10  # []
    MOVE = 11  # no session; [producer, worker, eof, state, trace], and the descriptor
    SYNC = 12  # C no session; [token]: send everything queued, then SYNCED (workers/barrier.h)
    CENSUS = 13  # C no session; [adopted, producers, workers, moves]: of the sending worker

    # From a shard to a home worker.
    OUTPUT = 20  # C [bytes]
    HEAD_IS = 21  # [token, ready, any, soon, pri, job, holds]
    LOST = 22  # [token]: the response to CLAIM or TAKE without a job
    WAITED = 23  # C [token, outcome]; executed in Python
    CANCELLED = 24  # [token, stopped]
    HOLDS_IS = 25  # [count, has_capacity]
    TUBES_ARE = 26  # [[number, name], ...]
    ENDED = 27  # C []: the proxy has failed, close the connection
    SYNCED = 28  # C no session; [token]
    ARRIVED = 29  # C no session; [number]: how many MOVEs every worker has counted
