"""A core with sockets whose rounds run one by one, so that a test acts between two of them."""

from __future__ import annotations

import socket
from pathlib import Path
from types import TracebackType

from beanstalkd_py.core.core import Core, CoreConfig
from beanstalkd_py.core.shared_memory import new_shared

MOST_ROUNDS = 100_000


class Rounds:
    """One core, open during a `with` block and then released as by a kill."""

    def __init__(self, folder: Path | None = None, *, sync_interval_ns: int = -1) -> None:
        path = None if folder is None else str(folder)
        self.shared = new_shared()
        self.core = Core(CoreConfig(path, sync_interval_ns=sync_interval_ns), self.shared)
        self.core.recover()
        self.clients: list[socket.socket] = []

    def __enter__(self) -> Rounds:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for client in self.clients:
            client.close()
        self.core.close()

    def client(self) -> socket.socket:
        """Return the client's end of a new connection."""
        ours, theirs = socket.socketpair()
        self.core.adopt(theirs.detach())
        ours.setblocking(False)
        self.clients.append(ours)
        return ours

    def run(self) -> None:
        """Run one round."""
        self.core.run(0, linger=False)

    def ask(self, client: socket.socket, data: bytes, lines: int = 1) -> bytes:
        """Send the bytes, and run rounds until so many lines have come."""
        client.sendall(data)
        got = b""
        for _ in range(MOST_ROUNDS):
            self.run()
            got += received(client)
            if got.count(b"\r\n") >= lines:
                return got
        raise AssertionError(f"no reply to {data[:100]!r}, only {got[:100]!r}")


def received(client: socket.socket) -> bytes:
    """Return what has arrived."""
    got = b""
    try:
        while data := client.recv(1 << 16):
            got += data
    except BlockingIOError:
        pass
    return got
