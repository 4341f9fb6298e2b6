"""The scenarios: each measures a server once, and has targets for its figures."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import BenchError
from .load import LoadPlan, LoadResult, run_load
from .placement import APART, FREE, Cpus
from .servers import Server, ServerSpec, running, scratch_folder

Figures = dict[str, float]

HEAP_SMALL_JOBS = 10_000
HEAP_TAKE_JOBS = 5_000
PREPARE_SECONDS = 600.0
IDLE_SECONDS = 30.0
DESCRIPTORS_SPARE = 200


@dataclass(frozen=True)
class Settings:
    """Sizes and times of all scenarios, from the command line."""

    seconds: float
    warmup: float
    body_bytes: int
    tubes: int
    memory_jobs: int
    heap_jobs: int
    heap_priorities: int
    idle: int
    restart_jobs: int
    backlog_jobs: int
    unique_keys: int
    own_tubes: bool


@dataclass
class Bench:
    """Everything a scenario needs to measure a server."""

    settings: Settings
    folder: Path
    reference: ServerSpec
    generator_cpus: Cpus | None = None
    prepared_binlog: Path | None = None

    def load(
        self,
        server: Server,
        connections: int,
        inflight: int,
        when_ready: Callable[[], None] | None = None,
        **more: Any,
    ) -> LoadResult:
        """Apply the load with the usual times, bodies and tubes, unless `more` overrides them."""
        settings = self.settings
        plan = LoadPlan(
            connections,
            inflight,
            settings.seconds,
            settings.warmup,
            settings.body_bytes,
            **{"tube_per_connection": settings.own_tubes, **more},
        )
        return run_load(server, plan, self.generator_cpus, when_ready)

    def fill(self, server: Server, jobs: int) -> None:
        run_load(server, LoadPlan(seconds=0, body=self.settings.body_bytes, fill=jobs))


@dataclass(frozen=True)
class Figure:
    """A number that a scenario measures, with its `key` in the result of `measure`.

    `target` is a bound for our figure, or for its ratio to the reference's: "ratio >= 1.3".
    """

    key: str
    unit: str
    target: str = ""


@dataclass(frozen=True)
class Scenario:
    name: str
    help: str
    measure: Callable[[Bench, ServerSpec], Figures]
    figures: tuple[Figure, ...]
    slow: bool = False
    ours_only: bool = False
    placement: str = FREE


def load_figures(result: LoadResult) -> Figures:
    return {
        "throughput": result.ops_per_s,
        "p50": result.p50_us,
        "p99": result.p99_us,
        "p99.9": result.p999_us,
        "server CPU": result.server_cpu_us_per_op,
        "generator busy": result.generator_busy_percent,
    }


def load_scenario(
    connections: int,
    inflight: int,
    throughput: str,
    *,
    sync: bool = False,
    cpu: str = "",
    p99: str = "",
) -> Scenario:
    """Make a scenario of put-reserve-delete cycles, with a sync before every reply or no binlog."""

    def measure(bench: Bench, spec: ServerSpec) -> Figures:
        with scratch_folder(bench.folder) as binlog:
            options = ("-b", str(binlog), "-f", "0") if sync else ()
            with running(spec, bench.folder, *options) as server:
                return load_figures(bench.load(server, connections, inflight))

    name = f"{'sync-' if sync else ''}{connections}x{inflight}"
    kind = "-b DIR -f 0" if sync else "no binlog"
    return Scenario(
        name,
        f"{connections} connections with {inflight} commands in flight each, {kind}",
        measure,
        (
            Figure("throughput", "op/s", throughput),
            Figure("p50", "us"),
            Figure("p99", "us", p99),
            Figure("p99.9", "us"),
            Figure("server CPU", "us/op", cpu),
            Figure("generator busy", "%"),
        ),
        # With many commands in flight, placement saves hardly any wake-up.
        placement=APART if inflight == 1 else FREE,
    )


def measure_tubes(bench: Bench, spec: ServerSpec) -> Figures:
    with running(spec, bench.folder) as server:
        one = bench.load(server, 16, 1)
        many = bench.load(server, 16, 1, prefill_tubes=bench.settings.tubes)
    return {
        "one tube": one.ops_per_s,
        "many tubes": many.ops_per_s,
        "throughput kept": 100 * many.ops_per_s / one.ops_per_s,
    }


def measure_memory(bench: Bench, spec: ServerSpec) -> Figures:
    jobs = bench.settings.memory_jobs
    with running(spec, bench.folder) as server:
        before = server.rss_bytes()
        bench.fill(server, jobs)
        after = server.rss_bytes()
    return {"empty": before / 2**20, "full": after / 2**20, "per job": (after - before) / jobs}


def measure_heap(bench: Bench, spec: ServerSpec) -> Figures:
    results: list[LoadResult] = []
    spread = bench.settings.heap_priorities
    for jobs in (HEAP_SMALL_JOBS, bench.settings.heap_jobs):
        with running(spec, bench.folder) as server:
            result = bench.load(server, 1, 100, fill=jobs, take=HEAP_TAKE_JOBS, pri_spread=spread)
            results.append(result)
    few, many = results
    return {
        "few jobs": few.ops_per_s,
        "many jobs": many.ops_per_s,
        "CPU, few": few.server_cpu_us_per_op,
        "CPU, many": many.server_cpu_us_per_op,
        "times the CPU": many.server_cpu_us_per_op / few.server_cpu_us_per_op,
    }


def wait_for_connections(server: Server, connections: int) -> None:
    """Wait for the accepts, because connections in the kernel's queue cost the server nothing."""
    deadline = time.monotonic() + IDLE_SECONDS
    while int(server.stats().get("current-connections", "0")) < connections:
        if time.monotonic() > deadline:
            raise BenchError(f"the server did not accept {connections} connections")
        time.sleep(0.05)


def check_descriptors(connections: int) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < connections + DESCRIPTORS_SPARE:
        raise BenchError(f"{connections} connections need a higher hard limit of descriptors")


def measure_idle(bench: Bench, spec: ServerSpec) -> Figures:
    idle = bench.settings.idle
    check_descriptors(idle)
    rss: list[int] = []
    with running(spec, bench.folder) as server:
        without = bench.load(server, 16, 1)
        rss.append(server.rss_bytes())

        def when_ready() -> None:
            wait_for_connections(server, idle)
            rss.append(server.rss_bytes())

        among = bench.load(server, 16, 1, when_ready, idle=idle)
    return {
        "per connection": (rss[1] - rss[0]) / idle,
        "none idle": without.ops_per_s,
        "among idle": among.ops_per_s,
        "throughput kept": 100 * among.ops_per_s / without.ops_per_s,
    }


def prepared_binlog(bench: Bench) -> Path:
    """Let the reference write ready jobs to a folder once; each start gets a copy."""
    if bench.prepared_binlog is None:
        folder = bench.folder / f"restart-{os.getpid()}"
        folder.mkdir()
        # Set first, so that the folder is removed even if the next steps fail.
        bench.prepared_binlog = folder
        with running(bench.reference, bench.folder, "-b", str(folder), "-F") as server:
            bench.fill(server, bench.settings.restart_jobs)
    return bench.prepared_binlog


def measure_restart(bench: Bench, spec: ServerSpec) -> Figures:
    source = prepared_binlog(bench)
    wanted = str(bench.settings.restart_jobs)
    with scratch_folder(bench.folder) as scratch:
        binlog = scratch / "binlog"
        shutil.copytree(source, binlog, ignore=shutil.ignore_patterns("lock"))
        # Otherwise the start would compete with writing the copy to the disk.
        os.sync()
        with running(spec, bench.folder, "-b", str(binlog), ready_seconds=0) as server:
            seconds = server.wait_for(
                lambda stats: stats.get("current-jobs-ready") == wanted, PREPARE_SECONDS
            )
            return {
                "start": seconds,
                "server CPU": server.cpu_ns() / 1e9,
                "memory": server.rss_bytes() / 2**20,
            }


STARTS = 30


def measure_start(bench: Bench, spec: ServerSpec) -> Figures:
    """Return medians of STARTS consecutive starts without a binlog."""
    listening, replying = [], []
    for _ in range(STARTS):
        with running(spec, bench.folder, ready_seconds=0) as server:
            seconds = server.first_reply(PREPARE_SECONDS)
            listening.append(1000 * seconds[0])
            replying.append(1000 * seconds[1])
    return {
        "listening": statistics.median(listening),
        "first reply": statistics.median(replying),
    }


@contextlib.contextmanager
def cleaned(bench: Bench) -> Iterator[None]:
    """Remove the data that scenarios keep between their rounds."""
    try:
        yield
    finally:
        if bench.prepared_binlog is not None:
            shutil.rmtree(bench.prepared_binlog, ignore_errors=True)


CPU_TARGET = "ratio <= 0.8"
P99_TARGET = "ratio <= 1"

SCENARIOS: tuple[Scenario, ...] = (
    load_scenario(1, 1, "ratio >= 1", cpu=CPU_TARGET, p99=P99_TARGET),
    load_scenario(16, 1, "ratio >= 1.3", cpu=CPU_TARGET, p99=P99_TARGET),
    load_scenario(64, 1, "ratio >= 1.4", cpu=CPU_TARGET, p99=P99_TARGET),
    load_scenario(64, 32, "ratio >= 15"),
    load_scenario(1, 1, "ratio >= 1", sync=True),
    load_scenario(64, 1, "ratio >= 5", sync=True),
    load_scenario(64, 32, "ratio >= 60", sync=True),
    Scenario(
        "tubes",
        "16x1 on the default tube while many other tubes hold one delayed job each",
        measure_tubes,
        (
            Figure("one tube", "op/s"),
            Figure("many tubes", "op/s"),
            Figure("throughput kept", "%", "ours >= 90"),
        ),
        slow=True,
    ),
    Scenario(
        "memory",
        "resident memory for each ready job, no binlog",
        measure_memory,
        (
            Figure("empty", "MiB"),
            Figure("full", "MiB"),
            Figure("per job", "bytes", "ours <= 220"),
        ),
        slow=True,
    ),
    Scenario(
        "heap",
        "reserve and delete, 100 in flight, with few and with many ready jobs of random priority",
        measure_heap,
        (
            Figure("few jobs", "op/s"),
            Figure("many jobs", "op/s"),
            Figure("CPU, few", "us/op"),
            Figure("CPU, many", "us/op"),
            Figure("times the CPU", "x", "ours <= 1.5"),
        ),
        slow=True,
        ours_only=True,
    ),
    Scenario(
        "idle",
        "resident memory for each idle connection, and 16x1 among them",
        measure_idle,
        (
            Figure("per connection", "bytes", "ours <= 2048"),
            Figure("none idle", "op/s"),
            Figure("among idle", "op/s"),
            Figure("throughput kept", "%", "ours >= 90"),
        ),
        slow=True,
    ),
    Scenario(
        "start",
        f"from the start of the process to listening and to the first reply, medians of {STARTS}",
        measure_start,
        (
            Figure("listening", "ms", "ours <= 40"),
            Figure("first reply", "ms", "ours <= 120"),
        ),
        slow=True,
    ),
    Scenario(
        "restart",
        "from the start of the process to serving all jobs of a binlog the reference wrote",
        measure_restart,
        (
            Figure("start", "s", "ratio <= 1"),
            Figure("server CPU", "s"),
            Figure("memory", "MiB"),
        ),
        slow=True,
    ),
)
