"""The load generator alone: divided replies and unexpected replies."""

from __future__ import annotations

import contextlib
import itertools
import re
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanstalkd_py.core.load_generator import Command, Load, LoadFailedError, Role

COMMAND = re.compile(
    rb"(?:with unique=([0-9a-f]{16})\r\n)?put \d+ 0 600 (\d+)\r\n"
    rb"|(reserve[^\r]*)\r\n|delete (\d+)\r\n"
)
ROUNDS = 4


class Scripted:
    """A server that answers a load correctly, in pieces of these sizes."""

    def __init__(self, body: int, sizes: list[int]) -> None:
        self.body = body
        self.jobs: list[int] = []
        self.deleted: list[int] = []
        self.keys: list[bytes] = []
        self._ids = itertools.count(10**18)
        self._sizes = itertools.cycle(sizes)
        self._in = b""
        self._out = b""

    def take(self, data: bytes) -> None:
        self._in += data
        while found := COMMAND.match(self._in):
            key, size, reserve, deleted = found.groups()
            end = found.end() + (int(size) + 2 if size else 0)
            if len(self._in) < end:
                return
            self._in = self._in[end:]
            if key:
                self.keys.append(key)
                self._out += b"WITH\r\n"
            if size:
                self.jobs.append(next(self._ids))
                self._out += b"INSERTED %d\r\n" % self.jobs[-1]
            elif reserve:
                self._out += b"RESERVED %d %d\r\n%b\r\n" % (
                    *(self.jobs.pop(0), self.body),
                    b"x" * self.body,
                )
            else:
                self.deleted.append(int(deleted))
                self._out += b"DELETED\r\n"

    def piece(self) -> bytes:
        size = next(self._sizes)
        piece, self._out = self._out[:size], self._out[size:]
        return piece


@pytest.mark.costly
@settings(max_examples=50)
@given(
    depth=st.integers(1, 5),
    body=st.integers(0, 200),
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=8),
    unique=st.booleans(),
)
def test_replies_in_any_pieces(depth: int, body: int, sizes: list[int], unique: bool) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        server = Scripted(body, sizes)
        load = Load(depth, body, unique=unique)
        load.add(ours.fileno(), Role.CYCLES)
        load.start(0, 3600)
        for _ in range(100_000):
            if not load.run(0):
                break
            with contextlib.suppress(BlockingIOError):
                server.take(theirs.recv(1 << 20))
            theirs.sendall(server.piece())
            if len(server.deleted) >= depth * ROUNDS:
                load.stop()
        assert server.jobs == []
        assert len(set(server.deleted)) == len(server.deleted)
        assert len(set(server.keys)) == unique * len(server.deleted)
        replies = [load.replies(one) for one in (Command.PUT, Command.RESERVE, Command.DELETE)]
        assert replies == [len(server.deleted)] * 3
        assert load.measured(Command.ALL, (0.5,)).count == 3 * len(server.deleted)


@pytest.mark.parametrize(
    ("reply", "refusal"),
    [
        (b"DRAINING\r\n", "put DRAINING"),
        (b"OUT_OF_MEMORY\r\n", "put OUT_OF_MEMORY"),
        (b"INSERTED x\r\n", "put INSERTED"),
        (b"INSERTED 999999999999999999999\r\n", "put INSERTED"),
        (b"INSERTED 1\r\nDELETED\r\n", "put DELETED"),
        (b"\xff" * 100, "put "),
        (b"INSERTED " + b"1" * 100, "put INSERTED"),
    ],
)
def test_unexpected_replies(reply: bytes, refusal: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        load = Load(1, 10)
        load.add(ours.fileno(), Role.PRODUCER)
        load.start(0, 3600)
        assert load.run(0.001)
        theirs.sendall(reply)
        with pytest.raises(LoadFailedError) as failed:
            for _ in range(100):
                load.run(0.01)
        assert failed.value.refusal == refusal


def test_a_connection_that_ends() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        load = Load(1, 10)
        load.add(ours.fileno(), Role.CYCLES)
        load.start(0, 3600)
        theirs.close()
        with pytest.raises(LoadFailedError, match="the connection is lost"):
            for _ in range(100):
                load.run(0.01)
