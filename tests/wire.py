"""A beanstalkd client that sends bytes unchanged and returns complete replies.

It parses only the end of a reply: its CR LF, or the end of its body.
"""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NamedTuple

CRLF = b"\r\n"
# A reply with a body ends its first line with the size of that body.
BODY_REPLY = re.compile(rb"(?:RESERVED \d+|FOUND \d+|OK) (\d+)\Z")
BATCH_REPLY = re.compile(rb"BATCH (\d+)\Z")
JOB_LINE = re.compile(rb"JOB (\d+) ([^ ]{1,200}) (\d+)\Z")
DEFAULT_TIMEOUT_S = 5.0
# Commands that `ask_each` sends at once.
AT_ONCE = 200
# An unknown command, which servers answer at once and do not count.
FENCE = b"fence\r\n"
FENCE_REPLY = b"UNKNOWN_COMMAND\r\n"


class NoReplyError(AssertionError):
    """The server sent no reply in time, or closed the connection."""


class Client:
    """One connection; every wait on it ends after `timeout_s`."""

    def __init__(
        self, port: int, timeout_s: float = DEFAULT_TIMEOUT_S, host: str = "127.0.0.1"
    ) -> None:
        self.timeout_s = timeout_s
        self.ended = False
        self._buffer = bytearray()
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        # Split writes must arrive in the pieces in which they were sent.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        """Return the local port."""
        number: int = self._socket.getsockname()[1]
        return number

    def close(self) -> None:
        """Close both directions. A second call does nothing."""
        self._socket.close()

    def half_close(self) -> None:
        """Shut down the sending direction."""
        self._socket.shutdown(socket.SHUT_WR)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def ask(self, data: bytes, timeout_s: float | None = None) -> bytes:
        """Send the bytes and return one reply."""
        self.send(data)
        return self.reply(timeout_s)

    def reply(self, timeout_s: float | None = None) -> bytes:
        """Return exactly one reply, with its body and every CR LF."""
        end = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        while (size := self._reply_size()) is None:
            if not self._receive(end - time.monotonic()):
                how = "closed the connection" if self.ended else "sent no whole reply"
                raise NoReplyError(f"the server {how}; unread so far: {bytes(self._buffer)!r}")
        reply = bytes(self._buffer[:size])
        del self._buffer[:size]
        return reply

    def replies(self, count: int) -> list[bytes]:
        """Return the next `count` replies."""
        return [self.reply() for _ in range(count)]

    def ask_each(self, commands: Sequence[bytes]) -> list[bytes]:
        """Send commands, many at once, and return the reply to each."""
        found = []
        for start in range(0, len(commands), AT_ONCE):
            some = commands[start : start + AT_ONCE]
            self.send(b"".join(some))
            found += self.replies(len(some))
        return found

    def ready_replies(self) -> list[bytes]:
        """Return the complete replies that have arrived, without waiting."""
        self.has_ended()
        found = []
        while (size := self._reply_size()) is not None:
            found.append(bytes(self._buffer[:size]))
            del self._buffer[:size]
        return found

    def read_to_end(self) -> bytes:
        """Return everything up to the server's end of the connection."""
        end = time.monotonic() + self.timeout_s
        while self._receive(end - time.monotonic()):
            pass
        if not self.ended:
            raise NoReplyError(f"the server did not close; it sent {bytes(self._buffer)!r}")
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def put(self, body: bytes = b"x", pri: int = 0, delay: int = 0, ttr: int = 100) -> int:
        """Put a job into the tube in use; return its id."""
        reply = self.ask(b"put %d %d %d %d\r\n%b\r\n" % (pri, delay, ttr, len(body), body))
        return inserted_id(reply)

    def stats(self, command: bytes = b"stats") -> dict[str, str]:
        """Return statistics in the server's order."""
        return stats_of(self.ask(command + CRLF))

    def job_stats(self, job: int) -> dict[str, str]:
        return self.stats(b"stats-job %d" % job)

    def reserve(self) -> int:
        """Reserve a job that is ready now; return its id."""
        reply = self.ask(b"reserve-with-timeout 0\r\n")
        assert reply.startswith(b"RESERVED "), f"no RESERVED: {reply!r}"
        return int(reply.split()[1])

    def bury(self, job: int, pri: int = 0) -> None:
        """Bury a ready, delayed or buried job by its id."""
        assert self.ask(b"reserve-job %d\r\n" % job).startswith(b"RESERVED ")
        assert self.ask(b"bury %d %d\r\n" % (job, pri)) == b"BURIED\r\n"

    def has_ended(self) -> bool:
        """Return whether the server has closed the connection; keep unread replies."""
        while self._receive(0):
            pass
        return self.ended

    def silent(self, seconds: float = 0.05) -> bool:
        """Return whether no data comes for that long."""
        return not self._buffer and not self._receive(seconds) and not self.ended

    def _reply_size(self) -> int | None:
        """Return the size of the first reply in the buffer, or None while it is incomplete."""
        line_end = self._buffer.find(CRLF)
        if line_end < 0:
            return None
        size = line_end + len(CRLF)
        batch = BATCH_REPLY.match(self._buffer[:line_end])
        if batch is not None:
            return self._batch_size(size, int(batch[1]))
        with_body = BODY_REPLY.match(self._buffer[:line_end])
        if with_body is None:
            return size
        size += int(with_body[1]) + len(CRLF)
        if len(self._buffer) < size:
            return None
        assert self._buffer[size - 2 : size] == CRLF, f"body not closed: {bytes(self._buffer)!r}"
        return size

    def _batch_size(self, size: int, jobs: int) -> int | None:
        for _ in range(jobs):
            line_end = self._buffer.find(CRLF, size)
            if line_end < 0:
                return None
            line = JOB_LINE.match(self._buffer[size:line_end])
            assert line, f"no job: {bytes(self._buffer[size:])!r}"
            size = line_end + len(CRLF) + int(line[3]) + len(CRLF)
        return size if len(self._buffer) >= size else None

    def _receive(self, timeout_s: float) -> bool:
        """Receive data; return False if none came in time or the connection ended."""
        if self.ended or not self._poll.poll(max(timeout_s, 0) * 1000):
            return False
        try:
            data = self._socket.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        self.ended = not data
        self._buffer += data
        return bool(data)


Connect = Callable[[], Client]


def inserted_id(reply: bytes) -> int:
    """Return the id in an INSERTED reply."""
    found = re.fullmatch(rb"INSERTED (\d+)\r\n", reply)
    assert found, f"no INSERTED: {reply!r}"
    return int(found[1])


class BatchJob(NamedTuple):
    """One job of a reply to reserve-batch."""

    id: int
    tube: bytes
    body: bytes


def jobs_of(reply: bytes) -> list[BatchJob]:
    """Check the form of a reply to reserve-batch, and return its jobs."""
    first, rest = reply.split(CRLF, 1)
    count = BATCH_REPLY.match(first)
    assert count, f"no batch: {reply!r}"
    jobs = []
    while rest:
        head, rest = rest.split(CRLF, 1)
        line = JOB_LINE.match(head)
        assert line, f"no job: {head!r}"
        size = int(line[3])
        assert rest[size : size + 2] == CRLF, f"body not closed: {reply!r}"
        jobs.append(BatchJob(int(line[1]), line[2], rest[:size]))
        rest = rest[size + 2 :]
    assert len(jobs) == int(count[1]), f"{len(jobs)} jobs in {first!r}"
    return jobs


def stats_of(reply: bytes) -> dict[str, str]:
    """Check the form of a statistics reply, and return its keys and values."""
    first, text = reply.split(CRLF, 1)
    assert first.startswith(b"OK "), f"no statistics: {reply!r}"
    lines = text.removesuffix(CRLF).decode().split("\n")
    assert lines[0] == "---" and lines[-1] == "", f"not the form of statistics: {reply!r}"
    return dict(line.split(": ", 1) for line in lines[1:-1])


def list_of(reply: bytes) -> list[bytes]:
    """Check the form of the reply to a list command, and return the names."""
    first, text = reply.split(CRLF, 1)
    assert first.startswith(b"OK "), f"no list: {reply!r}"
    lines = text.removesuffix(CRLF).split(b"\n")
    assert lines[0] == b"---" and lines[-1] == b"", f"not the form of a list: {reply!r}"
    assert all(line.startswith(b"- ") for line in lines[1:-1]), f"not a list: {reply!r}"
    return [line[2:] for line in lines[1:-1]]


def in_tube(client: Client, tube: bytes) -> Client:
    """Make a connection use and watch that tube alone."""
    client.send(b"use %b\r\nwatch %b\r\nignore default\r\n" % (tube, tube))
    assert client.replies(3) == [b"USING %b\r\n" % tube, b"WATCHING 2\r\n", b"WATCHING 1\r\n"]
    return client


def wait_for(client: Client, tube: bytes, key: str, value: int) -> None:
    """Wait until the tube's statistics have the value; poll at most a hundred times."""
    for _ in range(100):
        if client.stats(b"stats-tube " + tube)[key] == str(value):
            return
        client.silent(0.01)
    raise AssertionError(f"{key} is never {value}")
