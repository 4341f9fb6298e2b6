"""A client sees the effects of every reply that another client got before, in any scheduling.

Connections with sockets at several workers, which run their rounds in random order: a client sends,
the workers run until it has its reply, and then the next client sends. So any message between
workers, and any migrating connection, may be under way at any command.
"""

from __future__ import annotations

import random
import select
import socket
from collections.abc import Iterator

import pytest
from core.workers.cluster import Cluster
from hypothesis import given, settings
from hypothesis import strategies as st
from wire import list_of, stats_of

from beanstalkd_py.core.events import EventKind
from beanstalkd_py.core.placement import shard_of

TURNS = 20_000  # far more than any reply takes
STEPS = 20
MOVES_AFTER = 32
CLIENTS = 4


class Peer:
    """A connection, and the model of its state."""

    def __init__(self, world: World, home: int) -> None:
        self.world = world
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.socket = ours
        world.cluster.shared.parent.total_connections += 1
        core = world.cluster.cores[home]
        assert core is not None
        core.adopt(theirs.detach())
        self.use = b"default"
        self.watched = {b"default"}
        self.producer = self.worker = False

    def ask(self, data: bytes, replies: int = 1) -> list[bytes]:
        """Send, and run rounds of the workers until so many replies have arrived."""
        self.socket.send(data)
        got, found = b"", []
        for _ in range(TURNS):
            while (size := reply_size(got)) is not None:
                found.append(got[:size])
                got = got[size:]
            if len(found) == replies:
                assert got == b""
                return found
            if select.select([self.socket], [], [], 0)[0]:
                got += self.socket.recv(1 << 16)
            else:
                self.world.turn()
        raise AssertionError(f"no reply to {data!r}")


def reply_size(data: bytes) -> int | None:
    line, end, rest = data.partition(b"\r\n")
    if not end:
        return None
    words = line.split()
    body = int(words[-1]) + 2 if words[0] in (b"OK", b"RESERVED", b"FOUND") else 0
    return len(line) + 2 + body if len(rest) >= body else None


class World:
    """A cluster whose workers run in random order, and the model of one server."""

    def __init__(self, workers: int, seed: int) -> None:
        self.cluster = Cluster(workers)
        self.cluster.settle()
        self.dice = random.Random(seed)
        self.workers = workers
        self.busy = self.dice.choice([1, 3, 10])
        self.tubes = [b"default", *(self.cluster.tube_on(n % workers, n) for n in range(4))]
        self.pauses: dict[bytes, int] = {b"default": 0}
        self.peers = [Peer(self, self.dice.randrange(workers)) for _ in range(CLIENTS)]

    def turn(self) -> None:
        """Prefer one worker, or none."""
        shard = 0 if self.dice.randrange(self.busy) else self.dice.randrange(self.workers)
        self.turn_of(shard)
        if self.dice.randrange(3):
            self.collect(shard)

    def collect(self, shard: int) -> None:
        router = self.cluster.routers[shard]
        assert router is not None
        router.handle_all()

    def turn_of(self, shard: int) -> None:
        """A round of the core, and the answers to `stats`."""
        core = self.cluster.cores[shard]
        assert core is not None
        core.run(0, linger=False)
        for event in core.events():
            if event.kind == EventKind.STATS:
                counters = [self.cluster.shared.worker[n] for n in range(self.workers)]
                roles = core.roles()
                closed = sum(one.closed_connections for one in counters)
                text = (
                    f"---\ncurrent-tubes: {sum(one.tubes for one in counters)}\n"
                    f"current-producers: {roles.producers}\n"
                    f"current-workers: {roles.workers}\n"
                    f"current-connections:"
                    f" {self.cluster.shared.parent.total_connections - closed}\n"
                ).encode()
                core.answer(event.session, b"OK %d\r\n%b\r\n" % (len(text), text))

    def count(self) -> None:
        """Remove a tube without users and watchers from the model."""
        needed = {tube for peer in self.peers for tube in (peer.use, *peer.watched)}
        self.pauses = {
            tube: pauses
            for tube, pauses in self.pauses.items()
            if tube in needed or tube == b"default"
        }
        for tube in self.tubes:
            if tube in needed:
                self.pauses.setdefault(tube, 0)

    # --- what clients do ---

    def step(self) -> None:
        peer = self.dice.choice(self.peers)
        tube = self.dice.choice(self.tubes)
        what = self.dice.choice([self.use, self.watch, self.ignore, self.move, self.end, self.role])
        what(peer, tube)
        self.count()

    def use(self, peer: Peer, tube: bytes) -> None:
        assert peer.ask(b"use %b\r\n" % tube) == [b"USING %b\r\n" % tube]
        peer.use = tube

    def watch(self, peer: Peer, tube: bytes) -> None:
        peer.watched.add(tube)
        assert peer.ask(b"watch %b\r\n" % tube) == [b"WATCHING %d\r\n" % len(peer.watched)]

    def ignore(self, peer: Peer, tube: bytes) -> None:
        if peer.watched == {tube}:
            assert peer.ask(b"ignore %b\r\n" % tube) == [b"NOT_IGNORED\r\n"]
            return
        peer.watched.discard(tube)
        assert peer.ask(b"ignore %b\r\n" % tube) == [b"WATCHING %d\r\n" % len(peer.watched)]

    def move(self, peer: Peer, tube: bytes) -> None:
        """Use one tube until the connection migrates to its worker, or is about to."""
        self.use(peer, tube)
        many = MOVES_AFTER + self.dice.randrange(3)
        assert peer.ask(b"peek-ready\r\n" * many, many) == [b"NOT_FOUND\r\n"] * many

    def end(self, peer: Peer, tube: bytes) -> None:
        if self.dice.randrange(2):
            peer.socket.send(b"quit\r\n")
            while not select.select([peer.socket], [], [], 0)[0]:
                self.turn()
            assert peer.socket.recv(1) == b""
        peer.socket.close()
        self.peers.remove(peer)
        self.count()
        if self.dice.randrange(2):
            self.look(self.dice.choice(self.peers))
        self.peers.append(Peer(self, self.dice.randrange(self.workers)))

    def role(self, peer: Peer, tube: bytes) -> None:
        """Put or reserve; and pause a tube for 0 s, so that the tube's state is known again."""
        if self.dice.randrange(2):
            (reply,) = peer.ask(b"put 0 0 9 1\r\nx\r\n")
            assert peer.ask(b"delete %b" % reply.split(maxsplit=1)[1]) == [b"DELETED\r\n"]
            peer.producer = True
        else:
            assert peer.ask(b"reserve-with-timeout 0\r\n") == [b"TIMED_OUT\r\n"]
            peer.worker = True
        known = tube in self.pauses
        reply = b"PAUSED\r\n" if known else b"NOT_FOUND\r\n"
        assert peer.ask(b"pause-tube %b 0\r\n" % tube) == [reply]
        if known:
            self.pauses[tube] += 1

    # --- and what they see ---

    def look(self, peer: Peer) -> None:
        for question in self.dice.sample([self.see_tubes, self.see_stats, self.see_tube], 3):
            question(peer)

    def see_tubes(self, peer: Peer) -> None:
        names = list_of(peer.ask(b"list-tubes\r\n")[0])
        assert sorted(names) == sorted(self.pauses)
        assert names[0] == b"default"

    def see_stats(self, peer: Peer) -> None:
        assert stats_of(peer.ask(b"stats\r\n")[0]) == {
            "current-tubes": str(len(self.pauses)),
            "current-producers": str(sum(one.producer for one in self.peers)),
            "current-workers": str(sum(one.worker for one in self.peers)),
            "current-connections": str(len(self.peers)),
        }

    def see_tube(self, peer: Peer) -> None:
        """In one piece: one barrier is enough for all of them."""
        asked = self.dice.sample(self.tubes, 3)
        data = b"".join(b"stats-tube %b\r\n" % tube for tube in asked)
        for tube, reply in zip(asked, peer.ask(data, len(asked)), strict=True):
            if tube not in self.pauses:
                assert reply == b"NOT_FOUND\r\n"
                continue
            seen = stats_of(reply)
            assert [int(seen[f"c{key}"]) for key in ("urrent-using", "urrent-watching")] == [
                sum(one.use == tube for one in self.peers),
                sum(tube in one.watched for one in self.peers),
            ], (tube, shard_of(tube, self.workers))
            assert int(seen["cmd-pause-tube"]) == self.pauses[tube]

    def close(self) -> None:
        for peer in self.peers:
            peer.socket.close()
        self.cluster.__exit__(None, None, None)


@pytest.fixture
def moved() -> Iterator[list[int]]:
    """Counts the connections that have moved, so that a test is known to see some."""
    counts: list[int] = []
    yield counts
    assert sum(counts) > 0


@pytest.mark.timeout(300)
def test_all_questions_in_any_order_of_turns(moved: list[int]) -> None:
    @settings(max_examples=max(1, settings.default.max_examples // 3))  # type: ignore[union-attr]
    @given(workers=st.sampled_from([2, 3, 4]), seed=st.integers(0, 2**32))
    def play(workers: int, seed: int) -> None:
        world = World(workers, seed)
        try:
            for _ in range(STEPS):
                world.step()
                world.look(world.dice.choice(world.peers))
            counters = world.cluster.shared.worker
            moved.append(sum(counters[n].moved_in for n in range(workers)))
        finally:
            world.close()

    play()


def test_a_far_barrier_waits_for_what_others_send_each_other() -> None:
    """A connection of worker 0 ends, which used a tube of worker 1; worker 2 is asked."""
    world = World(3, 1)
    try:
        tube = world.cluster.tube_on(1, 7)
        leaving, asking = Peer(world, 0), Peer(world, 2)
        assert leaving.ask(b"use %b\r\n" % tube) == [b"USING %b\r\n" % tube]
        before = int(stats_of(asking.ask(b"stats\r\n")[0])["current-tubes"])
        leaving.socket.close()
        asking.socket.send(b"stats\r\n")
        for shard in (2, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 2, 2, 2):  # worker 1 could say: done
            world.turn_of(shard)
        assert not select.select([asking.socket], [], [], 0)[0]
        assert int(stats_of(asking.ask(b"")[0])["current-tubes"]) == before - 1
    finally:
        world.close()


def test_a_connection_that_arrives_during_a_barrier_is_counted_once() -> None:
    """A worker that has answered adopts a connection while another has not answered yet."""
    world = World(3, 1)
    try:
        home = shard_of(b"default", 3)
        first, second = (shard for shard in range(3) if shard != home)
        asking = Peer(world, home)
        assert asking.ask(b"ignore x\r\n") == [b"WATCHING 1\r\n"]
        asking.socket.send(b"stats-tube default\r\n")
        for shard in (home, home, *[first] * 6):
            world.turn_of(shard)
        arriving = Peer(world, first)
        for shard in (first, first, home, home, *[second] * 6):
            world.turn_of(shard)
        shown = stats_of(asking.ask(b"")[0])
        assert int(shown["current-using"]) == int(shown["current-watching"]) == CLIENTS + 2
        arriving.socket.close()
    finally:
        world.close()
