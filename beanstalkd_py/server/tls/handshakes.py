"""TLS handshakes in progress, and the limits on those that wait for their clients.

A client that connects and sends nothing occupies a slot until its timeout. Therefore each source
address has a limit of waiting handshakes, and so have all sources together. New handshakes do not
count, because a regular client replies within a round trip.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections import Counter, defaultdict

PER_SOURCE = 64
"""Handshakes of one source that may wait for longer than ROUND_TRIP_S."""
IN_ALL = 512
"""Handshakes that may wait for longer than SLOW_S."""
ROUND_TRIP_S = 0.25
SLOW_S = 1.0


class Handshake:
    """One handshake. `waits_since` is when it began to wait for the client, if it waits."""

    __slots__ = ("socket", "source", "waits_since")

    def __init__(self, sock: socket.socket, source: str) -> None:
        self.socket = sock
        self.source = source
        self.waits_since: float | None = None

    def abort(self) -> None:
        with contextlib.suppress(OSError):  # the client is gone
            # SSLSocket.shutdown would drop the TLS state that the handshake's greenlet uses.
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


class Handshakes:
    """All handshakes in progress, the oldest first."""

    def __init__(self) -> None:
        self._in_progress: dict[Handshake, None] = {}
        self._per_source: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._in_progress)

    def begin(self, sock: socket.socket, source: str) -> Handshake:
        """Add a handshake; `source` is the client's source_of."""
        handshake = Handshake(sock, source)
        self._in_progress[handshake] = None
        self._per_source[source] += 1
        return handshake

    def end(self, handshake: Handshake) -> None:
        del self._in_progress[handshake]
        self._per_source[handshake.source] -= 1
        if self._per_source[handshake.source] == 0:
            del self._per_source[handshake.source]

    def is_crowded(self, source: str) -> bool:
        """Return whether handshakes of other sources should go first."""
        return self._per_source[source] > PER_SOURCE

    def abort_surplus(self, now: float) -> int:
        """Abort the oldest waiting handshakes beyond the limits; return how many.

        `now` uses the clock of `waits_since`. Call it several times a second.
        """
        if len(self._in_progress) <= PER_SOURCE:
            return 0
        by_source: dict[str, list[Handshake]] = defaultdict(list)
        for handshake in self._waiting_longer_than(ROUND_TRIP_S, now):
            by_source[handshake.source].append(handshake)
        surplus = {one for those in by_source.values() for one in those[: len(those) - PER_SOURCE]}
        left = [one for one in self._waiting_longer_than(SLOW_S, now) if one not in surplus]
        surplus.update(left[: max(0, len(left) - IN_ALL)])
        for handshake in surplus:
            handshake.abort()
        return len(surplus)

    def _waiting_longer_than(self, seconds: float, now: float) -> list[Handshake]:
        """Return the oldest first, without those whose client has sent data."""
        poll = select.poll()
        waiting: dict[int, Handshake] = {}
        for handshake in self._in_progress:
            if handshake.waits_since is not None and handshake.waits_since < now - seconds:
                fd = handshake.socket.fileno()
                waiting[fd] = handshake
                poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(0) if waiting else ():
            del waiting[fd]
        return list(waiting.values())
