"""The format of the control socket: msgpack maps, one after the other, over a Unix stream.

A request is {"do": name, ...}. The answer is any number of maps {"part": value}, and a last map:
{"done": value}, or {"error": message} if nothing was done. Then the next request may follow. A
request "stop" during an answer ends the command; the last map is then {"done": value} with the
value of the last part and "stopped": true.
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
"""The maximum size of one map; longer answers come in parts."""

Message = dict[str, Any]


def encode(message: Message) -> bytes:
    data: bytes = msgpack.packb(message)
    return data


class MessageReader:
    """Decodes maps from a byte stream; `limit` is the maximum size of one map."""

    def __init__(self, limit: int) -> None:
        self._unpacker = msgpack.Unpacker(max_buffer_size=limit)

    def feed(self, data: bytes) -> None:
        """Add bytes. Raises ValueError if a map is too long."""
        try:
            self._unpacker.feed(data)
        except msgpack.BufferFull as error:
            raise ValueError("the message is too long") from error

    def take(self) -> Message | None:
        """Return the next map, or None if it is incomplete. Raises ValueError for other data."""
        try:
            message = next(self._unpacker, None)
        except (msgpack.UnpackException, ValueError, TypeError) as error:
            raise ValueError("the message is not msgpack") from error
        if message is not None and not isinstance(message, dict):
            raise ValueError("the message is not a map")
        return message
