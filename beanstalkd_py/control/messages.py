"""What is said on a control socket: msgpack maps, one after the other, over a Unix stream.

A request is {"do": name, ...}. Its answer is any number of maps {"part": value}, and one last map:
{"done": value}, or {"error": sentence} and nothing was done. Then the next request may come. A
request "stop" while the parts of an answer come ends what is being done: the last map is then
{"done": value} with the value of the last part and "stopped": true. Knows no sockets.
"""

from __future__ import annotations

from typing import Any

import msgpack

DO = "do"
STOP = "stop"
PART = "part"
DONE = "done"
ERROR = "error"

REQUEST_BYTES = 1 << 16
ANSWER_BYTES = 1 << 26
"""Of one map; an answer of any length comes in parts."""

Message = dict[str, Any]


def encode(message: Message) -> bytes:
    """The bytes of a map."""
    data: bytes = msgpack.packb(message)
    return data


class MessageReader:
    """Maps out of bytes that come in pieces; `limit` is bytes of one map."""

    def __init__(self, limit: int) -> None:
        self._unpacker = msgpack.Unpacker(max_buffer_size=limit)

    def feed(self, data: bytes) -> None:
        """Takes more bytes. Raises ValueError for a map that is too long."""
        try:
            self._unpacker.feed(data)
        except msgpack.BufferFull as error:
            raise ValueError("the message is too long") from error

    def take(self) -> Message | None:
        """The next map, or None while it is incomplete. Raises ValueError for anything else."""
        try:
            message = next(self._unpacker, None)
        except (msgpack.UnpackException, ValueError) as error:
            raise ValueError("these bytes are no message") from error
        if message is not None and not isinstance(message, dict):
            raise ValueError("the message is no map")
        return message
