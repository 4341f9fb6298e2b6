"""A connection that pipelines commands and records when each reply was read."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from . import ContradictionError, WorkloadError

TIMEOUT_S = 60.0
RECEIVE_BYTES = 1 << 18
WITH_BODY = (b"RESERVED ", b"FOUND ", b"OK ")


class When(NamedTuple):
    """The wall times between which an event happened, in nanoseconds, and its connection."""

    sent_ns: int
    at_ns: int
    conn: str


class Reply(NamedTuple):
    """`when` lasts from the sending of the batch until the end of this reply was read."""

    when: When
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

    def ask(self, commands: Sequence[bytes]) -> list[Reply]:
        """Send commands without their CR LF; return the replies."""
        if not commands:
            return []
        try:
            sent_ns = time.time_ns()
            self._socket.sendall(b"\r\n".join(commands) + b"\r\n")
            replies = self._replies(len(commands), sent_ns)
        except OSError as error:
            why = error.strerror or str(error)
            raise WorkloadError(f"the connection {self.name} was lost: {why}") from error
        self._answered()
        return replies

    def expect(self, commands: Sequence[bytes], words: Sequence[bytes]) -> list[Reply]:
        """Send commands whose replies begin with `words`. Raises ContradictionError."""
        replies = self.ask(commands)
        for command, word, reply in zip(commands, words, replies, strict=True):
            if not reply.line.startswith(word):
                raise ContradictionError(
                    f"{self.name}: {command[:60]!r} got {reply.line[:60]!r}, not {word.decode()}"
                )
        return replies

    def _replies(self, count: int, sent_ns: int) -> list[Reply]:
        replies: list[Reply] = []
        data = self._rest
        while len(replies) < count:
            more = self._socket.recv(RECEIVE_BYTES)
            if not more:
                raise ConnectionError("the server closed it")
            when = When(sent_ns, time.time_ns(), self.name)
            data += more
            position = _take(data, when, replies, count)
            data = data[position:]
        self._rest = data
        return replies


def _take(data: bytes, when: When, replies: list[Reply], count: int) -> int:
    """Append complete replies and return the position of the next one."""
    position = 0
    while len(replies) < count:
        end = data.find(b"\r\n", position)
        if end < 0:
            break
        line = data[position:end]
        if not line.startswith(WITH_BODY):
            replies.append(Reply(when, line))
            position = end + 2
            continue
        size = int(line.rsplit(b" ", 1)[1])
        if len(data) < end + 4 + size:
            break
        replies.append(Reply(when, line, data[end + 2 : end + 2 + size]))
        position = end + 4 + size
    return position
