"""Workload clients on real sockets of one core in this process, with its sync thread."""

from __future__ import annotations

import socket
import time

from binlog.workload import Actor, replies_in
from core.rig import Rig

from beanstalkd_py.core.core import Run

MILLISECOND = 10**6
WAIT_S = 20.0


class Crowd:
    """Several workload clients, each with one pending step."""

    def __init__(self, rig: Rig, names: list[str]) -> None:
        self.rig = rig
        self.actors = [Actor(name) for name in names]
        self._sockets = []
        self._buffers = [b"" for _ in names]
        for _ in names:
            here, there = socket.socketpair()
            here.setblocking(False)
            rig.core.adopt(there.detach())
            self._sockets.append(here)

    def close(self) -> None:
        """Close the clients' side."""
        for connection in self._sockets:
            connection.close()

    def run_until_fatal(self) -> None:
        """Run steps until the core reports a fatal error."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            self._send()
            if self.rig.core.run(MILLISECOND, linger=False) & Run.FATAL:
                return
            self._receive()
        raise AssertionError("nothing failed")

    def run_steps(self, steps: int) -> None:
        """Run until the clients have completed this many steps in total."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            self._send()
            self.rig.core.run(MILLISECOND, linger=False)
            self._receive()
            if sum(actor.steps - (actor.pending is not None) for actor in self.actors) >= steps:
                return
        raise AssertionError("no replies")

    def check_no_later_replies(self) -> None:
        """Check that no reply comes that was sent after the failure; earlier ones may be read."""
        self._receive()
        for connection, actor in zip(self._sockets, self.actors, strict=True):
            if actor.pending is None:
                connection.send(actor.next())
        for _ in range(3):
            assert self.rig.core.run(MILLISECOND, linger=False) & Run.FATAL
            for connection in self._sockets:
                assert _read(connection) == b""

    def _send(self) -> None:
        for connection, actor in zip(self._sockets, self.actors, strict=True):
            if actor.pending is None:
                connection.send(actor.next())

    def _receive(self) -> None:
        for i, (connection, actor) in enumerate(zip(self._sockets, self.actors, strict=True)):
            self._buffers[i] += _read(connection)
            replies = replies_in(self._buffers[i])
            if actor.pending is not None and len(replies) == len(actor.pending.words):
                actor.take(replies)
                self._buffers[i] = b""


def _read(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 16)
    except BlockingIOError:
        return b""
