"""A connection that pipelines commands and records when each reply was read."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import ContradictionError, WorkloadError

TIMEOUT_S = 60.0
RECEIVE_BYTES = 1 << 18
WITH_BODY = (b"RESERVED ", b"FOUND ", b"OK ")


@dataclass(slots=True)
class Reply:
    """`at_ns` is the wall time at which its end was read."""

    at_ns: int
    line: bytes
    body: bytes = b""

    def job_id(self) -> int:
        return int(self.line.split()[1])


class Connection:
    """`name` is its name in the log; `answered` is called after each batch of replies."""

    def __init__(self, host: str, port: int, name: str, answered: Callable[[], None]) -> None:
        self.name = name
        self._answered = answered
        try:
            self._socket = socket.create_connection((host, port), TIMEOUT_S)
        except OSError as error:
            raise WorkloadError(f"no server at {host}:{port}: {error.strerror}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def close(self) -> None:
        """Close the connection; its jobs become ready."""
        self._socket.close()

    def ask(self, commands: Sequence[bytes]) -> tuple[int, list[Reply]]:
        """Send commands without their CR LF; return the wall time of the send, and the replies."""
        sent_ns = time.time_ns()
        if not commands:
            return sent_ns, []
        try:
            self._socket.sendall(b"\r\n".join(commands) + b"\r\n")
            replies = self._replies(len(commands))
        except OSError as error:
            why = error.strerror or str(error)
            raise WorkloadError(f"the connection {self.name} was lost: {why}") from error
        self._answered()
        return sent_ns, replies

    def expect(self, commands: Sequence[bytes], words: Sequence[bytes]) -> tuple[int, list[Reply]]:
        """Send commands whose replies begin with `words`. Raises ContradictionError."""
        sent_ns, replies = self.ask(commands)
        for command, word, reply in zip(commands, words, replies, strict=True):
            if not reply.line.startswith(word):
                raise ContradictionError(
                    f"{self.name}: {command[:60]!r} got {reply.line[:60]!r}, not {word.decode()}"
                )
        return sent_ns, replies

    def _replies(self, count: int) -> list[Reply]:
        replies: list[Reply] = []
        data = self._rest
        while len(replies) < count:
            more = self._socket.recv(RECEIVE_BYTES)
            if not more:
                raise ConnectionError("the server closed it")
            at_ns = time.time_ns()
            data += more
            position = _take(data, at_ns, replies, count)
            data = data[position:]
        self._rest = data
        return replies


def _take(data: bytes, at_ns: int, replies: list[Reply], count: int) -> int:
    """Append complete replies and return the position of the next one."""
    position = 0
    while len(replies) < count:
        end = data.find(b"\r\n", position)
        if end < 0:
            break
        line = data[position:end]
        if not line.startswith(WITH_BODY):
            replies.append(Reply(at_ns, line))
            position = end + 2
            continue
        size = int(line.rsplit(b" ", 1)[1])
        if len(data) < end + 4 + size:
            break
        replies.append(Reply(at_ns, line, data[end + 2 : end + 2 + size]))
        position = end + 4 + size
    return position
