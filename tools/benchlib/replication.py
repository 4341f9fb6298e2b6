"""A server that replicates to three nats-servers on the same machine, compared with one that syncs.

All of them share the processors. nats-server and nats-py are those of tools/test's environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import BenchError
from .load import PYTHON, LoadPlan, run_load
from .placement import FREE
from .scenarios import Bench, Figure, Figures, Scenario
from .servers import HOST, Server, ServerSpec, free_ports, last_log_line, running, scratch_folder

PAIRS = 5
LOADS = ((64, 1), (64, 32))
NATS_SERVERS = 3
NATS_READY_SECONDS = 30.0
LEASE_SECONDS = 12
FAILOVER_SECONDS = 120.0
STEADY_SECONDS = 2.0
SMALL_SECONDS = 30.0
IDLE = 0.1
"""The share of a processor that an idle standby uses at most."""
BARE_PUBLISH = """
import asyncio, statistics, sys, time, nats

async def measure():
    client = await nats.connect(sys.argv[1])
    stream = client.jetstream()
    await stream.add_stream(name="bare", subjects=["bare"], num_replicas=3)
    times = []
    for _ in range(500):
        start = time.perf_counter()
        await stream.publish("bare", b"x" * 150)
        times.append(time.perf_counter() - start)
    print(statistics.median(times) * 1e6)

asyncio.run(measure())
"""
STREAM_LEADER = """
import asyncio, sys, nats

async def show():
    client = await nats.connect(sys.argv[1])
    print((await client.jetstream().stream_info(sys.argv[2])).cluster.leader)

asyncio.run(show())
"""


@dataclass(frozen=True)
class NatsServers:
    """`by_name` has the processes by the names that NATS shows."""

    url: str
    by_name: Mapping[str, subprocess.Popen[bytes]]

    def ask(self, script: str, *words: str) -> str:
        """Return the output of a script in Python that gets an address and `words`."""
        command = [PYTHON, "-P", "-c", script, self.url.split(",")[0], *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip()


@contextlib.contextmanager
def nats_servers(bench: Bench) -> Iterator[NatsServers]:
    """Run three nats-servers that sync each write."""
    program = Path(PYTHON).with_name("nats-server")
    with scratch_folder(bench.folder) as folder, contextlib.ExitStack() as stack:
        ports = free_ports(2 * NATS_SERVERS)
        routes = ", ".join(f"nats://{HOST}:{port}" for port in ports[NATS_SERVERS:])
        processes = {}
        for number in range(NATS_SERVERS):
            config, log = folder / f"{number}.conf", folder / f"{number}.log"
            config.write_text(
                f"server_name: n{number}\n"
                f"listen: {HOST}:{ports[number]}\n"
                f'jetstream {{ store_dir: "{folder}/{number}", sync_interval: always }}\n'
                f"cluster {{ name: bench, listen: {HOST}:{ports[NATS_SERVERS + number]},"
                f" routes: [{routes}] }}\n"
            )
            processes[f"n{number}"] = stack.enter_context(_nats_server(program, config, log))
        end = time.monotonic() + NATS_READY_SECONDS
        logs = [folder / f"{number}.log" for number in range(NATS_SERVERS)]
        while not all("metadata leader" in log.read_text() for log in logs):
            if time.monotonic() > end:
                raise BenchError(f"NATS is not ready: {last_log_line(logs[0])}")
            time.sleep(0.05)
        addresses = ",".join(f"{HOST}:{port}" for port in ports[:NATS_SERVERS])
        yield NatsServers(f"nats://{addresses}", processes)


@contextlib.contextmanager
def _nats_server(program: Path, config: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        try:
            process = subprocess.Popen([program, "-c", config], stdout=output, stderr=output)
        except OSError as error:
            raise BenchError(f"cannot start {program}: {error}; run tools/test first") from error
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def options(binlog: Path, target: str = "", name: str = "") -> list[str]:
    """Return the options of a server with a binlog, replicated if there is a target."""
    found = ["-b", str(binlog)]
    if target:
        # Not the name of this machine, because nobody forwards to this server.
        found += ["--replicate", f"{target}/{name}", "--replicate-address", f"{HOST}:1"]
    return found


def measure_replicated(bench: Bench, spec: ServerSpec) -> Figures:
    ratios: dict[str, list[float]] = {}
    latencies = []
    with nats_servers(bench) as nats:
        for pair in range(PAIRS):
            for connections, inflight in LOADS:
                rates = []
                for to in ("", nats.url):
                    with scratch_folder(bench.folder) as binlog:
                        name = f"bench-{pair}-{connections}-{inflight}"
                        with running(spec, bench.folder, *options(binlog, to, name)) as server:
                            rates.append(bench.load(server, connections, inflight).ops_per_s)
                ratios.setdefault(f"{connections}x{inflight}", []).append(rates[1] / rates[0])
            with (
                scratch_folder(bench.folder) as binlog,
                running(spec, bench.folder, *options(binlog, nats.url, f"one-{pair}")) as server,
            ):
                latencies.append(bench.load(server, 1, 1, puts_only=True).p50_us)
        bare = float(nats.ask(BARE_PUBLISH))
    figures = {name: statistics.median(found) for name, found in ratios.items()}
    put = statistics.median(latencies)
    return figures | {"put": put, "bare publish": bare, "more": put - bare}


def measure_failover(bench: Bench, spec: ServerSpec) -> Figures:
    """End a primary with many jobs three times; wait for the reply of its standby.

    It is stopped, killed, and killed together with the nats-server that leads its stream.
    """
    with (
        nats_servers(bench) as nats,
        scratch_folder(bench.folder) as first,
        scratch_folder(bench.folder) as second,
        contextlib.ExitStack() as stack,
    ):

        def run(folder: Path, ready_seconds: float) -> Server:
            of_server = options(folder, nats.url, "jobs")
            one = running(spec, bench.folder, *of_server, ready_seconds=ready_seconds)
            return stack.enter_context(one)

        primary = run(first, FAILOVER_SECONDS)
        bench.fill(primary, bench.settings.restart_jobs)
        standby = run(second, 0)
        size, seconds = _catch_up(second)
        _wait_until_idle(standby)
        stopped = _ends([primary.process.pid], signal.SIGTERM, standby)
        primary, standby = standby, run(first, 0)
        _wait_until_idle(standby)
        killed = _ends([primary.process.pid], signal.SIGKILL, standby)
        primary, standby = standby, run(second, 0)
        _wait_until_idle(standby)
        leader = nats.by_name[nats.ask(STREAM_LEADER, "beanstalkd-jobs-0")]
        both = _ends([leader.pid, primary.process.pid], signal.SIGKILL, standby)
    return {
        "after a stop": stopped,
        "after the lease": killed - LEASE_SECONDS,
        "with a nats-server": both - LEASE_SECONDS,
        "copied": size / 1e6 / seconds,
    }


def measure_small_messages(bench: Bench, spec: ServerSpec) -> Figures:
    """Put jobs one at a time, each of which is a message, and let a new standby copy them."""
    with (
        nats_servers(bench) as nats,
        scratch_folder(bench.folder) as first,
        scratch_folder(bench.folder) as second,
        running(spec, bench.folder, *options(first, nats.url, "small")) as primary,
    ):
        plan = LoadPlan(seconds=SMALL_SECONDS, warmup=0.0, puts_only=True)
        messages = run_load(primary, plan).commands
        with running(spec, bench.folder, *options(second, nats.url, "small"), ready_seconds=0):
            _, seconds = _catch_up(second)
    return {"copied": messages / seconds}


def _ends(pids: Sequence[int], number: signal.Signals, standby: Server) -> float:
    """End processes, among them a primary; return the seconds until its standby replies."""
    for pid in pids:
        os.kill(pid, number)
    begun = time.monotonic()
    standby.wait_for(lambda stats: stats["pid"] == str(standby.process.pid), FAILOVER_SECONDS)
    return time.monotonic() - begun


def _wait_until_idle(server: Server) -> None:
    """Wait until a standby has read its folder."""
    end = time.monotonic() + FAILOVER_SECONDS
    time.sleep(STEADY_SECONDS)
    cpu_ns = server.cpu_ns()
    while time.monotonic() < end:
        time.sleep(STEADY_SECONDS)
        used_ns, cpu_ns = server.cpu_ns() - cpu_ns, server.cpu_ns()
        if used_ns < IDLE * STEADY_SECONDS * 1e9:
            return
    raise BenchError("a standby does not become idle")


def _size(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.glob("binlog.*"))


def _catch_up(standby: Path) -> tuple[int, float]:
    """Wait until the folder of a standby does not grow any more; return its bytes, and seconds."""
    begin = grown = time.monotonic()
    size = 0
    while time.monotonic() < grown + STEADY_SECONDS:
        if size != (size := _size(standby)):
            grown = time.monotonic()
        if size == 0 and time.monotonic() < begin + FAILOVER_SECONDS:
            begin = grown = time.monotonic()
        time.sleep(0.05)
    return size, grown - begin


REPLICATION_SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "replicated",
        "throughput with --replicate, relative to a local sync; a put, and a publish to NATS",
        measure_replicated,
        (
            Figure("64x1", "x", "ours >= 0.15"),
            Figure("64x32", "x", "ours >= 0.1"),
            Figure("put", "us"),
            Figure("bare publish", "us"),
            Figure("more", "us", "ours <= 1000"),
        ),
        slow=True,
        ours_only=True,
        placement=FREE,
    ),
    Scenario(
        "failover",
        "time from a stop, or beyond the lease from a kill, of a primary to its standby's reply",
        measure_failover,
        (
            Figure("after a stop", "s", "ours <= 1"),
            Figure("after the lease", "s", "ours <= 2"),
            Figure("with a nats-server", "s", "ours <= 10"),
            Figure("copied", "MB/s", "ours >= 100"),
        ),
        slow=True,
        ours_only=True,
        placement=FREE,
    ),
    Scenario(
        "small-messages",
        "a new standby copies jobs of 100 bytes that were put one at a time",
        measure_small_messages,
        (Figure("copied", "message/s", "ours >= 15000"),),
        slow=True,
        ours_only=True,
        placement=FREE,
    ),
)
