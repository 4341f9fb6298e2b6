"""A proxy that delays or cuts the connection at a chosen request.

A request is the data of one send of the client, if a command in it changes a job. What the client
sends while the proxy is busy arrives together; of a large amount, REQUEST_SIZE is a request.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

CHANGING = re.compile(rb"(?:\A|\r\n)(?:put|delete|kick-job|reserve-job|bury|release) ")
REQUEST_SIZE = 16384
QUIET_S = 0.02
LIMIT_S = 20.0


@dataclass
class FaultProxy:
    """Forwards `before` requests, then `share` (0 to 1) of the next one, and cuts the connection.

    With `hold`, that request waits for `resume` instead.
    """

    port: int
    before: int
    share: float = 0.0
    hold: bool = False
    requests: int = 0
    cut: bool = False
    held: threading.Event = field(default_factory=threading.Event)
    _resumed: threading.Event = field(default_factory=threading.Event)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    @contextlib.contextmanager
    def open(self) -> Iterator[FaultProxy]:
        """Serve one connection."""
        with socket.create_server(("127.0.0.1", 0)) as self._listening:
            thread = threading.Thread(target=self._serve)
            thread.start()
            try:
                yield self
            finally:
                self._resumed.set()
                thread.join(LIMIT_S)
                assert not thread.is_alive()

    def resume(self) -> None:
        """Forward the held request and all later ones."""
        self._resumed.set()

    def _serve(self) -> None:
        client, _ = self._listening.accept()
        with client, socket.create_connection(("127.0.0.1", self.port)) as server:
            ends = {client: server, server: client}
            for end in ends:
                # Small replies must not wait for acknowledgements.
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while True:
                ready, _, _ = select.select(list(ends), [], [], LIMIT_S)
                for end in ready:
                    with contextlib.suppress(ConnectionError):
                        data = end.recv(REQUEST_SIZE)
                        if data and (end is server or self._passes(data, server)):
                            ends[end].sendall(data)
                            continue
                    return
                if not ready:
                    return

    def _passes(self, data: bytes, server: socket.socket) -> bool:
        if not CHANGING.search(data):
            return True
        self.requests += 1
        if self.requests != self.before + 1:
            return True
        if self.hold:
            self.held.set()
            self._resumed.wait(LIMIT_S)
            return True
        self.cut = True
        server.sendall(data[: int(len(data) * self.share)])
        if self.share == 1:
            # The server executes the whole request; only the replies are lost.
            while select.select([server], [], [], QUIET_S)[0] and server.recv(1 << 20):
                pass
        return False
