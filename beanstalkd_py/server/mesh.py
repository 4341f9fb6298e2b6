"""The sockets between this worker and the others: frames out in batches, frames in, and how full.

Packed frames, one after the other, are cut into messages on a SOCK_SEQPACKET socket; a frame may
carry a descriptor, alone in its message. What cannot be sent now is kept; from BUSY_BYTES on
the peer counts as busy, until half of that has left. Must not know what a frame means.
"""

from __future__ import annotations

import array
import errno
import socket
from collections import deque
from collections.abc import Iterator

import msgpack

from beanstalkd_py.server.frames import Frame

MESSAGE_BYTES = 1 << 16
BUSY_BYTES = 1 << 20
FEW_BYTES = 4096
MESSAGES_PER_TURN = 32
"""Read at once, so that one peer does not keep clients and other peers waiting."""

# No memory for the message, or too many descriptors on their way: both pass.
_TRANSIENT = frozenset((errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS))

_CONTROL_BYTES = socket.CMSG_SPACE(array.array("i").itemsize)


class PeerGoneError(Exception):
    """The other worker has closed its end."""


class Peer:
    """The socket to one other worker, which it owns."""

    def __init__(self, shard: int, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.shard = shard
        self._socket = sock
        self._packer = msgpack.Packer()
        self._unpacker = msgpack.Unpacker()
        self._batch = bytearray()
        self._queue: deque[tuple[bytes, int | None]] = deque()
        self._queued_bytes = 0
        self.busy = False
        self.wants_out = False
        self.messages_sent = 0
        self.bytes_sent = 0

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._socket.fileno()

    # --- out ------------------------------------------------------------------------------------

    def add(self, frame: Frame) -> None:
        """Puts a frame into the batch; `flush` sends it."""
        packed = self._packer.pack(frame)
        if len(self._batch) + len(packed) > MESSAGE_BYTES:
            self._close_batch()
        self._batch += packed

    def add_with_descriptor(self, frame: Frame, fd: int) -> None:
        """The same with a descriptor, which is closed here once it has left."""
        self._close_batch()
        self._enqueue(self._packer.pack(frame), fd)

    def flush(self) -> bool:
        """Sends what can be sent; whether some is left. Raises PeerGoneError."""
        self._close_batch()
        while self._queue:
            data, fd = self._queue[0]
            try:
                self._send(data, fd)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in _TRANSIENT:
                    break
                raise PeerGoneError from error
            self._queue.popleft()
            self._queued_bytes -= len(data)
            self.messages_sent += 1
            self.bytes_sent += len(data)
            if fd is not None:
                socket.close(fd)
        self.busy = self._queued_bytes > (BUSY_BYTES // 2 if self.busy else BUSY_BYTES)
        return bool(self._queue)

    def _close_batch(self) -> None:
        for start in range(0, len(self._batch), MESSAGE_BYTES):
            self._enqueue(bytes(self._batch[start : start + MESSAGE_BYTES]), None)
        self._batch.clear()

    def _enqueue(self, data: bytes, fd: int | None) -> None:
        self._queue.append((data, fd))
        self._queued_bytes += len(data)

    def _send(self, data: bytes, fd: int | None) -> None:
        if fd is None:
            self._socket.send(data)
            return
        rights = array.array("i", [fd])
        self._socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])

    # --- in -------------------------------------------------------------------------------------

    def receive(self) -> Iterator[tuple[Frame, int | None]]:
        """The frames that have come, each with its descriptor. Raises PeerGoneError."""
        for _ in range(MESSAGES_PER_TURN):
            try:
                data, control, _, _ = self._socket.recvmsg(
                    MESSAGE_BYTES, _CONTROL_BYTES, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except OSError as error:
                raise PeerGoneError from error
            if not data:
                raise PeerGoneError
            fds = array.array("i")
            for level, kind, rights in control:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds.frombytes(rights)
            self._unpacker.feed(data)
            for frame in self._unpacker:
                yield frame, fds[0] if fds else None
            if len(data) < FEW_BYTES:
                return  # most likely the only one, and if not, the socket is still readable

    def close(self) -> None:
        """Closes the socket and the descriptors that have not left."""
        for _, fd in self._queue:
            if fd is not None:
                socket.close(fd)
        self._queue.clear()
        self._socket.close()
