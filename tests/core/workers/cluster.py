"""Several workers in one process: cores and routers joined by real sockets, driven by hand.

The workers run until all are idle after each client input, so that a test reads like a
dialogue with one server. The clocks are the real ones.
"""

from __future__ import annotations

import select
import socket
from types import TracebackType
from typing import Any

from wire import CRLF, inserted_id, stats_of

from beanstalkd_py.core.core import Core, CoreConfig
from beanstalkd_py.core.events import EventKind
from beanstalkd_py.core.limits import Limits
from beanstalkd_py.core.placement import shard_of
from beanstalkd_py.core.shared_memory import new_shared
from beanstalkd_py.server.worker.upcalls import UpcallHandler

STATS_REPLY = b"OK 4\r\n---\n\r\n"
ROUNDS = 10_000  # far more than any exchange takes


class Cluster:
    """`workers` shards, open for the length of a `with` block."""

    def __init__(
        self, workers: int, colocate: bytes | None = None, limits: Limits | None = None
    ) -> None:
        self.limits = limits or Limits()
        self.workers = workers
        self.colocate = colocate
        self.shared = new_shared()
        self.shared.workers = workers
        self.cores: list[Core | None] = [None] * workers
        self.routers: list[UpcallHandler | None] = [None] * workers
        for shard in range(workers):
            self.start(shard)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for shard in range(self.workers):
            self.kill(shard)

    def start(self, shard: int) -> None:
        """Start a worker for this shard, with links to the running ones."""
        config = CoreConfig(worker=shard, workers=self.workers, colocate=self.colocate)
        core = self.cores[shard] = Core(config, self.shared)
        core.limit(self.limits)
        router = self.routers[shard] = UpcallHandler(core, self.workers)
        for other, its_router in enumerate(self.routers):
            if its_router is not None and other != shard:
                here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                router.add_peer(other, here.detach())
                its_router.add_peer(shard, there.detach())

    def kill(self, shard: int) -> None:
        """Kill a worker without notice to the others."""
        core = self.cores[shard]
        if core is None:
            return
        core.close()
        self.cores[shard] = self.routers[shard] = None

    def turn(self, shard: int) -> bool:
        """Run one round of one worker; return whether it had work."""
        core, router = self.cores[shard], self.routers[shard]
        if core is None or router is None:
            return False
        something = bool(select.select([core.fd], [], [], 0)[0])
        wants = core.run(0, linger=False)
        for event in core.events():
            if event.kind == EventKind.STATS:
                core.answer(event.session, STATS_REPLY)
                something = True
        router.handle_all()
        return bool(wants) or something

    def settle(self) -> None:
        """Run rounds until no worker has work."""
        quiet = 0
        for round_ in range(ROUNDS):
            quiet = 0 if self.turn(round_ % self.workers) else quiet + 1
            if quiet > 2 * self.workers:
                return
        raise AssertionError("the workers do not become idle")

    def client(self, shard: int = 0) -> ClusterClient:
        """Open a connection whose home is this worker."""
        return ClusterClient(self, shard)

    def tube_on(self, shard: int, number: int = 0) -> bytes:
        """Return the name of a tube of this shard; other numbers give other tubes."""
        names = (b"tube-%d" % i for i in range(100_000))
        ours = (name for name in names if shard_of(name, self.workers, self.colocate) == shard)
        for _ in range(number):
            next(ours)
        return next(ours)


class ClusterClient:
    """One connection."""

    def __init__(self, cluster: Cluster, home: int) -> None:
        self.cluster = cluster
        self.home = home
        core = cluster.cores[home]
        assert core is not None
        self.core: Core = core
        self.session = core.open()

    def send(self, data: bytes) -> None:
        """Send bytes and run the workers until they are idle."""
        self.core.feed(self.session, data)
        self.cluster.settle()

    def read(self) -> bytes:
        """Return the replies since the last call."""
        return self.core.output(self.session)

    def ask(self, data: bytes) -> bytes:
        """Send and read."""
        self.send(data)
        return self.read()

    def do(self, line: bytes, expected: bytes) -> None:
        """Send one command and check the first line of its reply."""
        assert self.ask(line + CRLF) == expected + CRLF, line

    def put(
        self, body: bytes = b"x", *, pri: int = 0, delay: int = 0, ttr: int = 100, tube: bytes = b""
    ) -> int:
        """Put a job and return its id."""
        use = b"use %b\r\n" % tube if tube else b""
        reply = self.ask(use + b"put %d %d %d %d\r\n%b\r\n" % (pri, delay, ttr, len(body), body))
        return inserted_id(reply.splitlines(keepends=True)[-1])

    def reserve(self, line: bytes = b"reserve-with-timeout 0") -> int | None:
        """Reserve; return the id, or None after TIMED_OUT."""
        reply = self.ask(line + CRLF)
        if reply == b"TIMED_OUT\r\n":
            return None
        assert reply.startswith(b"RESERVED "), reply
        return int(reply.split()[1])

    def job(self, number: int) -> dict[str, str]:
        """stats-job."""
        return stats_of(self.ask(b"stats-job %d\r\n" % number))

    def tube(self, name: bytes) -> dict[str, str]:
        """stats-tube."""
        return stats_of(self.ask(b"stats-tube %b\r\n" % name))

    def names(self, line: bytes) -> list[str]:
        """Return a list of names."""
        reply = self.ask(line + CRLF)
        return [line[2:] for line in reply.decode().splitlines() if line.startswith("- ")]

    def finish(self) -> None:
        """Close the sending side."""
        self.core.finish(self.session)
        self.cluster.settle()

    def close(self) -> None:
        """End the connection."""
        self.core.end(self.session)
        self.cluster.settle()


def total(cluster: Cluster, counter: str) -> Any:
    """The sum of a counter over all workers."""
    return sum(getattr(cluster.shared.worker[i], counter) for i in range(cluster.workers))
