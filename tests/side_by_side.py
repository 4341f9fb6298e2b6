"""Send the same bytes to two servers and compare their replies.

The reference decides which replies are correct. Only one connection acts at a time, and both
servers settle before the next action, so that no reply depends on their speed.

With several workers of ours, an answered command is not enough to settle. Jobs and pauses are
visible to all clients at once, but a tube's worker learns a moment later how many clients of other
workers use it, watch it or wait for it, and commands for another worker may still be on their way.
So all workers exchange messages before replies are compared.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from servers import Server, ours, reference
from shards import connect_at
from wire import CRLF, FENCE, FENCE_REPLY, Client, NoReplyError, stats_of

WAIT_S = 2.0
# After this many turns without a reply none will come, because the longest body takes fewer.
ROUNDS = 24
# A body that is thrown away takes a turn for each kilobyte; everything else takes few turns.
FEW_ROUNDS = 5
BYTES_PER_ROUND = 512
# The maximum round trips of a multi-shard reserve: ask all workers, wait at all, take from one.
EXCHANGES = 3

# Values that differ between two runs of one server, or between 1.12 and 1.13. cmd-stats is one
# because we poll stats while connections close.
_FREE_VALUES = {"pid", "version", "rusage-utime", "rusage-stime", "uptime", "age", "cmd-stats"}
_QUOTED_VALUES = {"name", "tube", "hostname", "os", "platform"}
_REMAINING_TIMES = {"time-left", "pause-time-left"}
# Servers may add keys after these, which are the last ones of C beanstalkd.
_LAST_KEYS = {"platform", "pause-time-left", "kicks"}
# Times in scripts are zero or very long, so the remaining seconds of long ones are equal.
_LONG_S = 5


class DifferenceError(AssertionError):
    """The replies of the two servers differ."""


class Side:
    """One of the two servers, with its connections by name."""

    def __init__(self, server: Server, workers: int) -> None:
        self.server = server
        self.control = server.connect()
        self.runners = [connect_at(server, worker, workers) for worker in range(workers)]
        self.clients: dict[str, Client] = {}

    def settle(self, rounds: int) -> None:
        """Wait until the server has served every connection that many times.

        The reference handles one event per turn, in order of arrival, so a command answered on
        another connection is a turn for all.
        """
        for _ in range(rounds):
            reply = self.control.ask(FENCE)
            assert reply == FENCE_REPLY, f"no fence: {reply!r}"

    def exchange(self) -> None:
        """Wait until every worker has received all messages that the others have sent.

        A list-tubes asks all workers, on the same sockets as the messages before it.
        """
        for _ in range(EXCHANGES if len(self.runners) > 1 else 0):
            for runner in self.runners:
                runner.send(b"list-tubes\r\n")
            for runner in self.runners:
                runner.reply()

    def disconnect(self) -> None:
        """Close every connection to this server."""
        for client in (self.control, *self.runners, *self.clients.values()):
            client.close()

    def await_closing(self) -> None:
        """Wait until the server has closed its side of closed connections."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            connected = int(self.control.stats()["current-connections"])
            # Closing one connection may make the server close others.
            kept = 1 + len(self.runners)
            known = kept + sum(not client.has_ended() for client in self.clients.values())
            if connected == known:
                return
        raise DifferenceError(f"{connected} connections, not {known}, on port {self.server.port}")


class Pair:
    """Our server and the reference; every action happens on both."""

    def __init__(self, our_server: Server, reference_server: Server, workers: int = 1) -> None:
        self.ours = Side(our_server, workers)
        self.reference = Side(reference_server, workers)
        self.sides = (self.ours, self.reference)
        self.transcript: list[str] = []
        self._sent: dict[str, int] = {}
        """Bytes, by the name of a connection."""

    def open(self, name: str) -> None:
        self._sent[name] = 0
        for side in self.sides:
            side.clients[name] = side.server.connect()
            side.settle(1)

    def is_open(self, name: str) -> bool:
        client = self.reference.clients.get(name)
        return client is not None and not client.ended

    def close(self, name: str) -> dict[str, list[bytes]]:
        """Close on both; return the replies that other connections get because of it."""
        self._note(name, "closes")
        for side in self.sides:
            side.clients.pop(name).close()
            side.await_closing()
        return self._compare()

    def half_close(self, name: str) -> dict[str, list[bytes]]:
        """Close the sending direction on both; return all replies."""
        self._note(name, "half closes")
        for side in self.sides:
            side.clients[name].half_close()
        return self._compare()

    def send(self, name: str, pieces: list[bytes]) -> dict[str, list[bytes]]:
        """Send the pieces to both in order; return the replies on all connections."""
        self._note(name, " | ".join(repr(piece)[1:] for piece in pieces))
        self._sent[name] += sum(map(len, pieces))
        for piece in pieces[:-1]:
            for side in self.sides:
                side.clients[name].send(piece)
                side.settle(1)
        for side in self.sides:
            side.clients[name].send(pieces[-1])
        return self._compare()

    def ask_control(self, command: bytes) -> bytes:
        """Ask both on a separate connection; return the reference's reply."""
        replies = [side.control.ask(command) for side in self.sides]
        mine, expected = ([normalised(reply)] for reply in replies)
        if mine != expected:
            raise self._difference("control", mine, expected)
        return replies[1]

    def _compare(self) -> dict[str, list[bytes]]:
        """Compare the replies on every connection."""
        expected: dict[str, list[bytes]] = {name: [] for name in self.reference.clients}
        rounds = min(ROUNDS, FEW_ROUNDS + max(self._sent.values()) // BYTES_PER_ROUND)
        news = True
        while news:
            self.reference.settle(rounds)
            news = False
            for name, client in self.reference.clients.items():
                came = client.ready_replies()
                expected[name] += came
                news = news or bool(came)
        found = {name: self._ours_like(name, len(expected[name])) for name in expected}
        self.ours.settle(2)
        for side in self.sides:
            side.exchange()
        for name, client in self.ours.clients.items():
            found[name] += client.ready_replies()
        if any(len(found[name]) > len(expected[name]) for name in expected):
            # The reference may need more turns than counted.
            time.sleep(0.1)
            for name, client in self.reference.clients.items():
                expected[name] += client.ready_replies()
        for name, replies in expected.items():
            self._hold_against(name, found[name], replies)
        return expected

    def _ours_like(self, name: str, count: int) -> list[bytes]:
        """Return as many replies of ours as the reference sent; read to the end if it closed."""
        client = self.ours.clients[name]
        replies = []
        try:
            for _ in range(count):
                replies.append(client.reply(WAIT_S))
            if self.reference.clients[name].ended and not client.ended:
                rest = client.read_to_end()
                assert not rest, f"before closing: {rest!r}"
        except NoReplyError as error:
            self._note(name, f"ours: {error}")
        return replies

    def _hold_against(self, name: str, found: list[bytes], expected: list[bytes]) -> None:
        mine, its = ([normalised(reply) for reply in replies] for replies in (found, expected))
        ends = self.ours.clients[name].ended, self.reference.clients[name].ended
        for reply in its:
            self._note(name, f"gets {reply[:200]!r}")
        if ends[1]:
            self._note(name, "is closed by the server")
        if mine != its or ends[0] != ends[1]:
            raise self._difference(name, mine, its)

    def _difference(self, name: str, mine: list[bytes], its: list[bytes]) -> DifferenceError:
        story = "\n".join(self.transcript[-60:])
        return DifferenceError(
            f"on connection {name}\nours:      {mine!r}\nreference: {its!r}\nafter\n{story}"
        )

    def _note(self, name: str, what: str) -> None:
        short = re.sub(r"(.)\1{30,}", lambda run: f"{{{run[1]}*{len(run[0])}}}", what)
        self.transcript.append(f"{name} {short[:300]}")


@contextmanager
def both(*args: str, workers: int = 1) -> Iterator[Pair]:
    """Start our server and the reference with the same arguments."""
    several = ("--workers", str(workers)) if workers > 1 else ()
    with ours(*several, *args) as our_server, reference(*args) as reference_server:
        pair = Pair(our_server, reference_server, workers)
        try:
            yield pair
        finally:
            for side in pair.sides:
                side.disconnect()


def normalised(reply: bytes) -> bytes:
    """Return a reply without values that may differ; sort lists without a fixed order."""
    if not reply.startswith(b"OK "):
        return reply
    if not re.search(rb"^[a-z-]+: ", reply, re.MULTILINE):
        _, text = reply.split(CRLF, 1)
        return b"OK " + b" ".join(sorted(text.split()))
    lines = []
    stats = stats_of(reply)
    for key, value in stats.items():
        lines.append(f"{key}: {_normal_value(stats, key, value)}")
        if key in _LAST_KEYS:
            break
    return "\n".join(lines).encode()


def _normal_value(stats: dict[str, str], key: str, value: str) -> str:
    if key in _FREE_VALUES or (key == "id" and "pid" in stats):
        return "free"
    if key in _QUOTED_VALUES:
        return value.strip('"')
    if key in _REMAINING_TIMES and int(value) >= _LONG_S:
        return "long"
    return value
