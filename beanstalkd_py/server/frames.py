"""What workers say to each other: msgpack arrays, the kind first, then the home's session number.

From the home of a connection to a shard it needs, and back. A session's bytes may be cut anywhere,
so a frame is never larger than a message of the mesh takes. Knows no sockets.
"""

from __future__ import annotations

import enum
from typing import Any

Frame = list[Any]

BYTES_PER_FRAME = 48 * 1024
"""Of a session's bytes."""


class Kind(enum.IntEnum):
    """The first element of a frame; in brackets, what follows the session."""

    # To the shard.
    FEED = 0  # [bytes]: protocol lines for the proxy (route.h)
    CLOSE = 1  # []: the connection has ended
    HEAD = 2  # [token]
    CLAIM = 3  # [token, pri, job]
    WAIT = 4  # [token]
    TAKE = 5  # [token]
    CANCEL = 6  # [token]
    RESERVE = 7  # [token, poll]
    HOLDS = 8  # []: how many jobs has it reserved, and is there room for one more connection?
    COUNT = 9  # no session; [tube, users, watchers, number]: what this home knows
    TUBES = 10  # []
    MOVE = 11  # no session; [producer, worker, eof, state], and the descriptor

    # And back.
    OUTPUT = 20  # [bytes]
    HEAD_IS = 21  # [token, ready, any, soon, pri, job]
    LOST = 22  # [token]: the answer to CLAIM or TAKE when it is no RESERVED
    WAITED = 23  # [token, outcome]
    CANCELLED = 24  # [token, stopped]
    HOLDS_IS = 25  # [count, room]
    TUBES_ARE = 26  # [[number, name], ...]
    ENDED = 27  # []: the proxy has failed, and the connection is to end


def pieces(data: bytes) -> list[bytes]:
    """A session's bytes as frames can carry them."""
    if len(data) <= BYTES_PER_FRAME:
        return [data]
    return [data[i : i + BYTES_PER_FRAME] for i in range(0, len(data), BYTES_PER_FRAME)]
