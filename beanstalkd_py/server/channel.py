"""Messages between the parent and one worker: msgpack arrays over a SOCK_SEQPACKET pair.

The kernel keeps message boundaries, so a message is one send and one recv. Downwards go
["configure", {...}] first and ["stop"]; upwards ["ready"] or ["failed", status, text]. A side
that ends closes its end, which the other sees as the end of messages. Knows no event loop:
receiving blocks unless the descriptor is known to be readable.
"""

from __future__ import annotations

import socket
from typing import Any

import msgpack

MESSAGE_BYTES = 1 << 16

CONFIGURE = "configure"
STOP = "stop"
READY = "ready"
FAILED = "failed"

Message = list[Any]


def channel_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends. Raises OSError."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Channel:
    """One end, which it owns."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._socket.fileno()

    def send(self, *message: Any) -> bool:
        """Sends one message; False when the other side has gone. Never larger than 64 KiB."""
        data = msgpack.packb(message)
        if len(data) > MESSAGE_BYTES:
            raise ValueError("the message is larger than a channel takes")
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def receive(self) -> Message | None:
        """The next message, or None when the other side has gone."""
        try:
            data = self._socket.recv(MESSAGE_BYTES)
        except ConnectionResetError:
            return None
        if not data:
            return None
        message: Message = msgpack.unpackb(data)
        return message

    def close(self) -> None:
        """Closes this end, which tells the other side."""
        self._socket.close()
