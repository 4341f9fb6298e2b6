"""Messages between the parent and one worker: msgpack arrays over a SOCK_SEQPACKET pair.

The kernel keeps message boundaries, so a message is one send and one recv. Downwards go
["configure", {...}] first, ["peer", index] with one end of a socket pair whose other end that
worker gets, ["change", {...}] with options that are new, ["ask", number, {...}], ["ping"] and
["stop"]; upwards ["ready"] or ["failed", status, text], ["answer", number, {...}] and ["pong"].
With the process that speaks TLS it is the same, but for ["certificates"] with a file of them, and
upwards ["connection"] with a descriptor; the archiver sends ["status", {...}] upwards. A side that
ends closes its end, which the other sees as the end of messages. Knows no event loop: receiving
blocks unless the descriptor is known to be readable.
"""

from __future__ import annotations

import os
import socket
from typing import Any

import msgpack

from beanstalkd_py.server.process.descriptor_passing import (
    ANCILLARY_BYTES,
    Ancillary,
    received_fd,
    scm_rights,
)

MESSAGE_BYTES = 1 << 16
QUEUE_BYTES = 1 << 20
"""Asked for; the kernel gives what it allows. Enough for a message about each of 254 peers."""

CONFIGURE = "configure"
PEER = "peer"
CHANGE = "change"
ASK = "ask"
ANSWER = "answer"
PING = "ping"
STOP = "stop"
READY = "ready"
FAILED = "failed"
PONG = "pong"
CERTIFICATES = "certificates"
CONNECTION = "connection"
STATUS = "status"

Message = list[Any]


def channel_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends. Raises OSError."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, QUEUE_BYTES)
    return ends


class Channel:
    """One end, which it owns."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._socket.fileno()

    def never_block(self) -> None:
        """From now on a message that finds no room is not sent instead of being waited for."""
        self._socket.setblocking(False)

    def send(self, *message: Any) -> bool:
        """Sends one message; False when the other side has gone, or takes no more for now."""
        return self._send(message, None)

    def send_fd(self, fd: int, *message: Any) -> bool:
        """Sends one message and a descriptor, which stays the caller's to close."""
        return self._send(message, fd)

    def _send(self, message: tuple[Any, ...], fd: int | None) -> bool:
        data = msgpack.packb(message)
        if len(data) > MESSAGE_BYTES:
            raise ValueError("the message is larger than a channel takes")
        ancillary = [] if fd is None else scm_rights(fd)
        try:
            self._socket.sendmsg([data], ancillary)
        except (BrokenPipeError, ConnectionResetError, BlockingIOError):
            return False
        return True

    def receive(self) -> Message | None:
        """The next message, or None when the other side has gone. A descriptor is closed."""
        message, fd = self.receive_with_fd()
        if fd is not None:
            os.close(fd)
        return message

    def receive_with_fd(self) -> tuple[Message | None, int | None]:
        """As `receive`, and the descriptor that came along, if any; it is the caller's then."""
        try:
            data, ancillary = self._receive_bytes()
        except ConnectionResetError:
            # The other side has gone without reading all that was sent to it. The system says so
            # once and first, but what it has sent itself is still here.
            data, ancillary = self._receive_bytes()
        fd = received_fd(ancillary)
        if not data:
            return None, fd
        message: Message = msgpack.unpackb(data)
        return message, fd

    def _receive_bytes(self) -> tuple[bytes, Ancillary]:
        return self._socket.recvmsg(MESSAGE_BYTES, ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC)[:2]

    def close(self) -> None:
        """Closes this end, which tells the other side."""
        self._socket.close()
