"""What workers say to each other: msgpack arrays, the kind first, then the home's session number.

From the home of a connection to a shard it needs, and back. Those marked with a C are written and
carried out by the core (csrc/links/frames.h) and are only listed here. Knows no sockets.
"""

from __future__ import annotations

import enum
from typing import Any

Frame = list[Any]


class Kind(enum.IntEnum):
    """The first element of a frame; in brackets, what follows the session."""

    # To the shard.
    FEED = 0  # C [bytes]: protocol lines for the proxy (route.h)
    CLOSE = 1  # C []: the connection has ended
    HEAD = 2  # [token]
    CLAIM = 3  # [token, pri]
    WAIT = 4  # [token]
    TAKE = 5  # [token]
    CANCEL = 6  # [token]
    RESERVE = 7  # [token, poll]
    HOLDS = 8  # []: how many jobs has it reserved, and is there room for one more connection?
    COUNT = 9  # C no session; [tube, users, watchers, holds, number]: what this home knows
    TUBES = 10  # []
    MOVE = 11  # no session; [producer, worker, eof, state, trace], and the descriptor
    SYNC = 12  # C no session; [token]: send what you have, then SYNCED (csrc/workers/barrier.h)
    CENSUS = 13  # C no session; [adopted, producers, workers, moves]: of this worker

    # And back.
    OUTPUT = 20  # C [bytes]
    HEAD_IS = 21  # [token, ready, any, soon, pri, job, holds]
    LOST = 22  # [token]: the answer to CLAIM or TAKE when it is no RESERVED
    WAITED = 23  # C [token, outcome]; home takes it in Python
    CANCELLED = 24  # [token, stopped]
    HOLDS_IS = 25  # [count, room]
    TUBES_ARE = 26  # [[number, name], ...]
    ENDED = 27  # C []: the proxy has failed, and the connection is to end
    SYNCED = 28  # C no session; [token]
    ARRIVED = 29  # C no session; [number]: so many MOVEs are known to every worker
