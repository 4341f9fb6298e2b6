"""A backlog larger than memory: our server with `--body-memory` compared to itself without."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from .load import LoadPlan, LoadResult, run_load
from .scenarios import PREPARE_SECONDS, Bench, Figure, Figures, Scenario
from .servers import Server, ServerSpec, running, scratch_folder

BODY = 1000
LIMIT = "64M"
TAKE_JOBS = 20_000
PAIRS = 3
IDLE_SECONDS = 0.5
IDLE_SHARE = 0.02


def take(bench: Bench, server: Server) -> LoadResult:
    """Take jobs from the head of the backlog, and put as many behind it."""
    settings = bench.settings
    plan = LoadPlan(1, 100, settings.seconds, settings.warmup, BODY, take=TAKE_JOBS)
    return run_load(server, plan, bench.generator_cpus)


def measure_backlog(bench: Bench, spec: ServerSpec) -> Figures:
    """Fill a folder, start on it in turn without and with the option, and take jobs."""
    jobs = bench.settings.backlog_jobs
    starts: list[dict[str, float]] = []
    kept: list[float] = []
    cost: list[float] = []
    with scratch_folder(bench.folder) as folder:
        options = ("-b", str(folder), "-F")
        few = (*options, "--body-memory", LIMIT)
        with running(spec, bench.folder, *few) as server:
            run_load(server, LoadPlan(seconds=0, body=BODY, fill=jobs))
            filled = server.rss_bytes() / 2**20
        for pair in range(PAIRS):
            results: dict[tuple[str, ...], LoadResult] = {}
            for chosen in (options, few) if pair % 2 else (few, options):
                with running(spec, bench.folder, *chosen, ready_seconds=0) as server:
                    if (figures := started(server, jobs, folder)) and chosen is few:
                        starts.append(figures)
                    wait_until_idle(server)
                    results[chosen] = take(bench, server)
            kept.append(results[few].ops_per_s / results[options].ops_per_s)
            cost.append(results[few].server_cpu_us_per_op / results[options].server_cpu_us_per_op)
    medians = {key: statistics.median(one[key] for one in starts) for key in starts[0]}
    return {
        "filled": filled,
        **medians,
        "throughput kept": statistics.median(kept),
        "CPU per op": statistics.median(cost),
    }


def wait_until_idle(server: Server) -> None:
    """Wait for the files that a start makes for the deletes of all jobs."""
    before = server.cpu_ns()
    deadline = time.monotonic() + PREPARE_SECONDS
    while time.monotonic() < deadline:
        time.sleep(IDLE_SECONDS)
        now = server.cpu_ns()
        if now - before < IDLE_SECONDS * 1e9 * IDLE_SHARE:
            return
        before = now


def started(server: Server, jobs: int, folder: Path) -> dict[str, float]:
    """Wait until the server has all jobs; return figures of the start."""
    wanted = str(jobs)
    seconds = server.wait_for(
        lambda stats: stats.get("current-jobs-ready") == wanted, PREPARE_SECONDS
    )
    size = sum(path.stat().st_size for path in folder.glob("binlog.*[0-9]"))
    return {
        "start": seconds,
        "start CPU": size / server.cpu_ns(),
        "started": server.rss_bytes() / 2**20,
    }


BACKLOG_SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "backlog",
        f"jobs of {BODY} bytes, taken in order, 100 in flight: --body-memory {LIMIT} or not",
        measure_backlog,
        (
            Figure("filled", "MiB"),
            Figure("start", "s"),
            Figure("start CPU", "GB/s", "ours >= 1"),
            Figure("started", "MiB"),
            Figure("throughput kept", "x", "ours >= 0.9"),
            Figure("CPU per op", "x"),
        ),
        slow=True,
        ours_only=True,
    ),
)
