"""Messages between the parent and one child process: msgpack arrays over a SOCK_SEQPACKET pair.

The kernel keeps message boundaries, so a message is one send and one recv. A process that ends
closes its end, which the other side reads as the end of messages.

    to a child      ["configure", {...}]    always the first message: ProcessConfig
                    ["change", {...}]       ServeOptions
                    ["peer", index]         to a worker, with a socket to another worker
                    ["ask", number, name, arguments]
                    ["offered", worker], ["stored", worker]
                                            to a replicated worker and to the replicator, with an
                                            eventfd of csrc/api/replication.h
                    ["saved", name, number] to the replicator: a file of the folder has changed
                    ["listener", is_tls]    to the replicator, with a listening socket
                    ["begin"]               to the replicator, after these
                    ["console", {...}]      to the console, with its listening socket: ConsoleConfig
                    ["ping"], ["stop"]
                    ["finish"]              to a worker: execute no command of a client any more
                    ["primary"]             to a replicated worker: this server may serve
    to the parent   ["ready"], ["failed", status, text], ["pong"]
                    ["finished"]            of a worker: clients have received their replies
                    ["stopped"]             of a worker: everything is on disk and all replies are
                                            sent; the end of a large process takes a while
                    ["answer", number, result]
                    ["connection"]          of a TLS process, with a descriptor
                    ["status", {...}]       of the archiver: ArchiverStatus; of the replicator:
                                            ReplicatorStatus
                    ["primary"]             of the replicator: this server may serve
                    ["saved", number]       of the replicator: the log has that file now
                    ["failover"]            of the replicator: another server should serve
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Any

import msgpack

MESSAGE_BYTES = 1 << 17
"""Twice the maximum size of the tube policies, which are most of the largest message."""
QUEUE_BYTES = 1 << 20
"""Send buffer; enough for a message about each of 254 peers."""

UNICODE_ERRORS = "surrogateescape"
"""Applied to all strings, because paths need not be UTF-8."""

CONFIGURE = "configure"
PEER = "peer"
CHANGE = "change"
ASK = "ask"
ANSWER = "answer"
PING = "ping"
STOP = "stop"
READY = "ready"
STOPPED = "stopped"
FINISH = "finish"
FINISHED = "finished"
FAILED = "failed"
PONG = "pong"
CONNECTION = "connection"
CONSOLE = "console"
OFFERED = "offered"
STORED = "stored"
LISTENER = "listener"
BEGIN = "begin"
PRIMARY = "primary"
FAILOVER = "failover"
SAVED = "saved"
STATUS = "status"

TRANSIENT = frozenset((errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM))
"""Too many descriptors in flight, or no memory for the message: a retry succeeds."""

DESCRIPTOR = struct.Struct("i")

Message = list[Any]


def channel_pair() -> tuple[socket.socket, socket.socket]:
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, QUEUE_BYTES)
    return ends


class Channel:
    """One end of the pair; owns its socket. Blocks unless the socket is non-blocking."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def fileno(self) -> int:
        return self._socket.fileno()

    def set_nonblocking(self) -> None:
        self._socket.setblocking(False)

    def send(self, *message: Any, fd: int | None = None) -> bool:
        """Send one message, and a descriptor that the caller still owns.

        Returns False if the peer is gone or its queue is full.
        """
        data = msgpack.packb(message, unicode_errors=UNICODE_ERRORS)
        if len(data) > MESSAGE_BYTES:
            raise ValueError(f"message of {len(data)} bytes exceeds the channel's {MESSAGE_BYTES}")
        try:
            if fd is None:
                self._socket.send(data)
            else:
                socket.send_fds(self._socket, [data], [fd])
        except (BrokenPipeError, ConnectionResetError, BlockingIOError):
            return False
        return True

    def receive(self) -> Message | None:
        """Return the next message, or None at the end. Closes the message's descriptor, if any."""
        message, fd = self.receive_with_fd()
        if fd is not None:
            os.close(fd)
        return message

    def receive_with_fd(self) -> tuple[Message | None, int | None]:
        """Return the next message, or None at the end, and a descriptor that the caller owns."""
        try:
            data, fd = self._receive_bytes()
        except ConnectionResetError:
            # The peer ended without reading everything. The kernel reports this once; the messages
            # that the peer sent are still readable.
            data, fd = self._receive_bytes()
        if not data:
            return None, fd
        message: Message = msgpack.unpackb(data, unicode_errors=UNICODE_ERRORS)
        return message, fd

    def _receive_bytes(self) -> tuple[bytes, int | None]:
        # Not socket.recv_fds, which ignores its flags: a child started meanwhile would inherit it.
        data, ancillary, _, _ = self._socket.recvmsg(
            MESSAGE_BYTES, socket.CMSG_LEN(DESCRIPTOR.size), socket.MSG_CMSG_CLOEXEC
        )
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                return data, DESCRIPTOR.unpack(content)[0]
        return data, None

    def close(self) -> None:
        self._socket.close()
