"""Costs and benefits of several workers: each scenario compares our server with itself.

The clients are written in Python. Their cost does not matter, because scenarios compare the same
client at a local and a remote tube, or use deep pipelines.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import statistics
import subprocess
import time

from . import BenchError
from .load import LoadResult
from .placement import APART, FREE
from .scenarios import Bench, Figure, Figures, Scenario
from .servers import HOST, Server, ServerSpec, running

PAIR_SECONDS = 0.25
PIPELINED_PUTS = 100
CONNECTIONS = 20_000
CONNECTIONS_AT_A_TIME = 1_000
CLOSE_SECONDS = 2.0
WORKERS = 2
ROUNDS = 5
WATCHED = 8
WATCHED_JOBS = 160_000


def tubes_by_shard(spec: ServerSpec, workers: int) -> list[bytes]:
    """Return the name of one tube per shard, computed by the package that the server runs."""
    script = (
        "from beanstalkd_py.core.placement import shard_of\n"
        f"names = [b'tube-%d' % i for i in range(1000)]\n"
        f"for shard in range({workers}):\n"
        f"    print(next(n for n in names if shard_of(n, {workers}) == shard).decode())"
    )
    command = [spec.command[0], "-P", "-c", script]
    asked = subprocess.run(command, cwd=spec.cwd, capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        raise BenchError(f"{spec.command[0]} cannot import beanstalkd_py: is it its interpreter?")
    return [line.encode() for line in asked.stdout.split()]


class Client:
    """One blocking connection."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.create_connection((HOST, server.port), 10.0)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._replies = self._socket.makefile("rb")

    def ask(self, data: bytes, replies: int = 1) -> bytes:
        """Send data, read this many lines, and return the last one."""
        self._socket.sendall(data)
        line = b""
        for _ in range(replies):
            line = self._replies.readline()
        return line

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read(self, size: int) -> bytes:
        return self._replies.read(size)

    def fileno(self) -> int:
        return self._socket.fileno()

    def expect(self, data: bytes, words: bytes) -> None:
        reply = self.ask(data)
        if not reply.startswith(words):
            raise BenchError(f"{data!r} was answered {reply!r}")

    def close(self) -> None:
        self._replies.close()
        self._socket.close()


def staying_client(server: Server, home: bytes) -> Client:
    """Open a connection that cannot migrate, because it holds a job of its home worker."""
    client = Client(server)
    client.expect(b"use %b\r\n" % home, b"USING")
    client.expect(b"put 0 0 3600 0\r\n\r\n", b"INSERTED")
    client.expect(b"watch %b\r\n" % home, b"WATCHING")
    client.expect(b"ignore default\r\n", b"WATCHING")
    client.expect(b"reserve\r\n", b"RESERVED")
    client.ask(b"", 1)  # the body
    return client


def put_cycle(body: int) -> bytes:
    return b"put 0 0 60 %d\r\n%b\r\n" % (body, b"x" * body)


def latencies_us(client: Client, command: bytes, seconds: float) -> list[float]:
    found = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        client.ask(command)
        found.append((time.perf_counter() - start) * 1e6)
    return found


def measure_remote(bench: Bench, spec: ServerSpec) -> Figures:
    """Alternate between a local and a remote tube at short intervals, for equal conditions."""
    near_tube, far_tube = tubes_by_shard(spec, WORKERS)
    command = put_cycle(bench.settings.body_bytes)
    near: list[float] = []
    far: list[float] = []
    with running(spec, bench.folder, f"--workers={WORKERS}") as server:
        clients = [staying_client(server, near_tube), staying_client(server, near_tube)]
        clients[1].expect(b"use %b\r\n" % far_tube, b"USING")
        for client in clients:
            latencies_us(client, command, bench.settings.warmup)
        for _ in range(max(1, round(bench.settings.seconds / PAIR_SECONDS))):
            near += latencies_us(clients[0], command, PAIR_SECONDS)
            far += latencies_us(clients[1], command, PAIR_SECONDS)
    medians = statistics.median(near), statistics.median(far)
    return {"near": medians[0], "far": medians[1], "more": medians[1] - medians[0]}


def measure_remote_pipelined(bench: Bench, spec: ServerSpec) -> Figures:
    near_tube, far_tube = tubes_by_shard(spec, WORKERS)
    batch = put_cycle(bench.settings.body_bytes) * PIPELINED_PUTS
    with running(spec, bench.folder, f"--workers={WORKERS}") as server:
        client = staying_client(server, near_tube)
        client.expect(b"use %b\r\n" % far_tube, b"USING")
        client.ask(batch, PIPELINED_PUTS)
        cpu_before, start, puts = server.cpu_ns(), time.perf_counter(), 0
        while time.perf_counter() < start + bench.settings.seconds:
            if not client.ask(batch, PIPELINED_PUTS).startswith(b"INSERTED"):
                raise BenchError("a pipelined put to another shard failed")
            puts += PIPELINED_PUTS
        seconds = time.perf_counter() - start
        cpu_s = (server.cpu_ns() - cpu_before) / 1e9
    return {"throughput": puts / seconds, "per core": puts / cpu_s}


def measure_workers(bench: Bench, spec: ServerSpec) -> Figures:
    """Measure pairs of one worker and two, with one tube per connection."""
    ratios: list[float] = []
    costs: list[float] = []
    for _ in range(ROUNDS):
        results = []
        for workers in (1, WORKERS):
            with running(spec, bench.folder, f"--workers={workers}") as server:
                results.append(bench.load(server, 64, 32, tube_per_connection=True))
        one, many = results
        ratios.append(many.ops_per_s / one.ops_per_s)
        costs.append(many.server_cpu_us_per_op / one.server_cpu_us_per_op)
    return {"throughput": statistics.median(ratios), "CPU per op": statistics.median(costs)}


def measure_watching(bench: Bench, spec: ServerSpec) -> Figures:
    """Compare clients that watch tubes of all shards on one worker, on several, and on C's."""
    found: dict[str, list[float]] = {}
    for _, clients in itertools.product(range(ROUNDS), (1, 16)):
        c = watching_load(bench, bench.reference, clients)
        one = watching_load(bench, spec, clients, "--workers", "1")
        for workers in (2, 4):
            many = watching_load(bench, spec, clients, "--workers", str(workers))
            name = f"{workers} workers, {clients} clients"
            cpu = many.server_cpu_us_per_op / one.server_cpu_us_per_op
            found.setdefault(f"{name}: rate", []).append(many.ops_per_s / one.ops_per_s)
            found.setdefault(f"{name}: CPU", []).append(cpu)
            found.setdefault(f"{name}: C's rate", []).append(many.ops_per_s / c.ops_per_s)
    return {name: statistics.median(ratios) for name, ratios in found.items()}


def watching_load(bench: Bench, spec: ServerSpec, clients: int, *options: str) -> LoadResult:
    with running(spec, bench.folder, *options) as server:
        jobs = WATCHED_JOBS if clients > 1 else WATCHED_JOBS // 4
        return bench.load(server, clients, 1, watch=WATCHED, fill=jobs)


def measure_connections(bench: Bench, spec: ServerSpec) -> Figures:
    """Open connections, a thousand at a time, send one command each, and close them."""
    tubes = tubes_by_shard(spec, WORKERS)
    with running(spec, bench.folder, f"--workers={WORKERS}") as server:
        seconds = 0.0
        memory = 0
        for done in range(0, CONNECTIONS, CONNECTIONS_AT_A_TIME):
            seconds += open_and_close(server, tubes)
            if done == 0:
                memory = server.rss_bytes()
        with contextlib.suppress(BenchError):  # the last connections are still closing
            server.wait_for(lambda stats: stats["current-connections"] == "1", CLOSE_SECONDS)
        left = int(server.stats()["current-connections"]) - 1
        grown = server.rss_bytes() - memory
    return {"rate": CONNECTIONS / seconds, "memory grown": grown / 1024, "left": left}


def open_and_close(server: Server, tubes: list[bytes]) -> float:
    start = time.perf_counter()
    sockets = [
        socket.create_connection((HOST, server.port), 10.0) for _ in range(CONNECTIONS_AT_A_TIME)
    ]
    for n, one in enumerate(sockets):
        one.sendall(b"use %b\r\n" % tubes[n % len(tubes)])
    for one in sockets:
        if not one.recv(256).startswith(b"USING"):
            raise BenchError("a connection was closed without a reply")
    for one in sockets:
        one.close()
    return time.perf_counter() - start


# Two workers and the generator need three cores to outperform one worker.
THROUGHPUT_TARGET = "ours >= 1.8" if (os.cpu_count() or 1) > WORKERS else ""

WORKER_FIGURES = (
    Figure("throughput", "x", THROUGHPUT_TARGET),
    Figure("CPU per op", "x", "ours <= 1.1"),
)

WATCHING_FIGURES = tuple(
    Figure(f"{workers} workers, {clients} clients: {key}", "x", target)
    for workers, clients, rate, cpu in (
        (2, 1, 0.85, 0),
        (2, 16, 0.9, 1.6),
        (4, 1, 0, 0),
        (4, 16, 0.8, 2),
    )
    for key, target in (
        ("rate", f"ours >= {rate}" if rate else ""),
        ("CPU", f"ours <= {cpu}" if cpu else ""),
        ("C's rate", "ours >= 1"),
    )
)

SHARD_SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "workers",
        "64x32 with a tube for each connection: two workers against one",
        measure_workers,
        WORKER_FIGURES,
        # An idle worker executes fewer commands per round, which costs more per command. With the
        # generator on its own core both workers are busy.
        placement=APART,
        slow=True,
        ours_only=True,
    ),
    Scenario(
        "workers-free",
        "the same on all cores, so that what workers share wanders between them",
        measure_workers,
        WORKER_FIGURES,
        placement=FREE,
        slow=True,
        ours_only=True,
    ),
    Scenario(
        "watching",
        f"clients that watch {WATCHED} tubes of all shards, several workers against one",
        measure_watching,
        WATCHING_FIGURES,
        slow=True,
        ours_only=True,
    ),
    Scenario(
        "remote",
        "a put to a tube of another worker, one in flight, by a connection that stays",
        measure_remote,
        (
            Figure("near", "us"),
            Figure("far", "us"),
            Figure("more", "us", "ours <= 150"),
        ),
        slow=True,
        ours_only=True,
    ),
    Scenario(
        "remote-pipelined",
        f"the same, {PIPELINED_PUTS} in flight",
        measure_remote_pipelined,
        (
            Figure("throughput", "op/s"),
            Figure("per core", "op/s", "ours >= 40000"),
        ),
        slow=True,
        ours_only=True,
    ),
    Scenario(
        "connections",
        f"{CONNECTIONS} opened and closed, {CONNECTIONS_AT_A_TIME} at a time, two workers",
        measure_connections,
        (
            Figure("rate", "1/s", "ours >= 3000"),
            Figure("memory grown", "KiB"),
            Figure("left", "", "ours <= 0"),
        ),
        slow=True,
        ours_only=True,
    ),
)
