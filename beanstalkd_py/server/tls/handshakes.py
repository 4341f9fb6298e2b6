"""TLS handshakes under way, and which of them are given up so that others get their turn.

A client that connects and then stays silent holds a place until its time is over. So a source
address may have only so many handshakes that wait for it, and all sources together only so many,
unless they are young: an honest client answers within a round trip. Must not know TLS.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections import Counter, defaultdict

PER_SOURCE = 64
"""Handshakes of one source that may wait for longer than ROUND_TRIP_S."""
IN_ALL = 512
"""Handshakes that may wait for longer than PATIENCE_S."""
ROUND_TRIP_S = 0.25
PATIENCE_S = 1.0


class Handshake:
    """One handshake. `waits_since` is when it began to wait for the client, if it does."""

    __slots__ = ("socket", "source", "waits_since")

    def __init__(self, sock: socket.socket, source: str) -> None:
        self.socket = sock
        self.source = source
        self.waits_since: float | None = None

    def give_up(self) -> None:
        """Makes the handshake fail, wherever it waits."""
        with contextlib.suppress(OSError):  # the client has gone already
            # Of the plain socket: that of SSLSocket takes the state of TLS away from its user.
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


class Handshakes:
    """All that are under way, in the order in which they began."""

    def __init__(self) -> None:
        self._under_way: dict[Handshake, None] = {}
        self._of_source: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, sock: socket.socket, source: str) -> Handshake:
        """Adds the handshake of a connected socket; `source` is its client's source_of."""
        handshake = Handshake(sock, source)
        self._under_way[handshake] = None
        self._of_source[source] += 1
        return handshake

    def end(self, handshake: Handshake) -> None:
        """Removes one that has succeeded or failed."""
        del self._under_way[handshake]
        self._of_source[handshake.source] -= 1
        if self._of_source[handshake.source] == 0:
            del self._of_source[handshake.source]

    def is_crowded(self, source: str) -> bool:
        """Whether this source has so many under way that those of others come first."""
        return self._of_source[source] > PER_SOURCE

    def give_up_surplus(self, now: float) -> int:
        """Gives up those that wait for too long where there are too many; how many those are.

        `now` is the time of `waits_since`. To be called several times a second.
        """
        if len(self._under_way) <= PER_SOURCE:
            return 0
        slow = self._waiting_longer_than(ROUND_TRIP_S, now)
        by_source: dict[str, list[Handshake]] = defaultdict(list)
        for handshake in slow:
            by_source[handshake.source].append(handshake)
        surplus = {one for those in by_source.values() for one in those[: len(those) - PER_SOURCE]}
        left = [one for one in self._waiting_longer_than(PATIENCE_S, now) if one not in surplus]
        surplus.update(left[: max(0, len(left) - IN_ALL)])
        for handshake in surplus:
            handshake.give_up()
        return len(surplus)

    def _waiting_longer_than(self, seconds: float, now: float) -> list[Handshake]:
        """The oldest first. A client whose bytes are there is not the one who is waited for."""
        poll = select.poll()
        found: dict[int, Handshake] = {}
        for handshake in self._under_way:
            if handshake.waits_since is not None and handshake.waits_since < now - seconds:
                fd = handshake.socket.fileno()
                found[fd] = handshake
                poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(0) if found else ():
            del found[fd]
        return list(found.values())
