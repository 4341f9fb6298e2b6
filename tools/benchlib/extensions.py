"""Costs of protocol extensions and tube policies: our server compared with itself."""

from __future__ import annotations

import contextlib
import itertools
import select
import statistics
import threading
import time
from collections.abc import Callable, Iterator

from . import BenchError
from .load import LoadPlan, LoadResult, run_load
from .placement import FREE
from .scenarios import Bench, Figure, Figures, Scenario, check_descriptors
from .servers import Server, ServerSpec, running, scratch_folder
from .shards import Client

PAIRS = 5
LOADS = ((16, 1), (64, 32))
POLICIES = 1_000
CREATED_TUBES = 200_000
RATE_PER_S = 200
RATE_CLIENTS = (1, 100, 1_000)
RATE_SECONDS = 60.0
WAITERS = 10_000
LISTED_PAGE = 1_000
SETTLE_SECONDS = 1.0


def measure_unique(bench: Bench, spec: ServerSpec) -> Figures:
    """Compare puts with and without a key, while jobs with other keys are in the server.

    After each load its jobs are deleted, so that the number of keys is the same for the next one.
    """
    jobs = bench.settings.unique_keys
    ratios: dict[str, list[float]] = {}
    with running(spec, bench.folder) as server:
        run_load(server, LoadPlan(seconds=0, body=8, fill=jobs, unique=True))
        for _, (connections, inflight) in itertools.product(range(PAIRS), LOADS):
            plain, unique = (
                put_only(bench, server, connections, inflight, keys) for keys in (False, True)
            )
            name = f"{connections}x{inflight}"
            ratio = unique.server_cpu_us_per_op / plain.server_cpu_us_per_op
            ratios.setdefault(f"{name}: CPU", []).append(ratio)
            ratios.setdefault(f"{name}: time", []).append(plain.ops_per_s / unique.ops_per_s)
    return {name: statistics.median(found) for name, found in ratios.items()}


def put_only(
    bench: Bench, server: Server, connections: int, inflight: int, unique: bool
) -> LoadResult:
    result = bench.load(
        server, connections, inflight, puts_only=True, unique=unique, tube_per_connection=True
    )
    with client(server) as cleaner:
        for number in range(connections):
            cleaner.expect(b"truncate bench-own-%d\r\n" % number, b"TRUNCATED")
    return result


@contextlib.contextmanager
def configured(spec: ServerSpec, bench: Bench, policies: dict[str, str]) -> Iterator[Server]:
    """Start the server with these tube policies; a pattern has one line of TOML."""
    with scratch_folder(bench.folder) as scratch:
        config = scratch / "beanstalkd-py.toml"
        text = "".join(f'[tube."{pattern}"]\n{line}\n' for pattern, line in policies.items())
        config.write_text(text)
        with running(spec, bench.folder, "--config", str(config)) as server:
            yield server


def tube_creation_us(server: Server) -> float:
    before = server.cpu_ns()
    run_load(server, LoadPlan(seconds=0, prefill_tubes=CREATED_TUBES))
    return (server.cpu_ns() - before) / 1000 / CREATED_TUBES


def measure_policies(bench: Bench, spec: ServerSpec) -> Figures:
    """Compare a server with a thousand policies, none of which applies, to one without."""
    many = {f"mails-{number}.*": "max-jobs = 1000" for number in range(POLICIES)}
    found: dict[str, list[float]] = {}
    for pair in range(PAIRS):
        costs: dict[bool, dict[str, float]] = {}
        for has_policies in (False, True) if pair % 2 else (True, False):
            with configured(spec, bench, many if has_policies else {}) as server:
                loads = {
                    f"{connections}x{inflight}: CPU": bench.load(server, connections, inflight)
                    for connections, inflight in LOADS
                }
                cost = {name: load.server_cpu_us_per_op for name, load in loads.items()}
                costs[has_policies] = {**cost, "tube creation: CPU": tube_creation_us(server)}
        for name, without in costs[False].items():
            found.setdefault(name, []).append(costs[True][name] / without)
    return {name: statistics.median(ratios) for name, ratios in found.items()}


def measure_rate(bench: Bench, spec: ServerSpec) -> Figures:
    """Let clients take the jobs of a tube with a rate."""
    figures: Figures = {}
    jobs = round(RATE_PER_S * (RATE_SECONDS + 2 * SETTLE_SECONDS)) * 2
    for clients in RATE_CLIENTS:
        with configured(spec, bench, {"*": f'rate = "{RATE_PER_S}/s"'}) as server:
            bench.fill(server, jobs)
            with contextlib.ExitStack() as stack:
                waiting = [stack.enter_context(client(server)) for _ in range(clients)]
                delivered, cpu_us = take_at_rate(server, waiting)
        figures[f"{clients} clients: rate"] = delivered / (RATE_PER_S * RATE_SECONDS)
        figures[f"{clients} clients: CPU"] = cpu_us / delivered
    return figures


@contextlib.contextmanager
def client(server: Server) -> Iterator[Client]:
    one = Client(server)
    try:
        yield one
    finally:
        one.close()


def take_at_rate(server: Server, clients: list[Client]) -> tuple[int, float]:
    """Reserve and delete with each client; return the measured jobs and the server's CPU time."""
    with select.epoll() as arrivals:
        by_fd = {one.fileno(): one for one in clients}
        for fd, one in by_fd.items():
            arrivals.register(fd, select.EPOLLIN)
            one.send(b"reserve\r\n")
        begin = time.monotonic() + SETTLE_SECONDS
        end = begin + RATE_SECONDS
        delivered, cpu_before = 0, 0
        while (now := time.monotonic()) < end:
            if cpu_before == 0 and now >= begin:
                cpu_before = server.cpu_ns()
            for fd, _ in arrivals.poll(end - now):
                taken = by_fd[fd].ask(b"", 1)
                by_fd[fd].ask(b"", 1)  # the body
                by_fd[fd].expect(b"delete %b\r\n" % taken.split()[1], b"DELETED")
                by_fd[fd].send(b"reserve\r\n")
                delivered += now >= begin
        return delivered, (server.cpu_ns() - cpu_before) / 1000


def longest_us(bench: Bench, server: Server, event: Callable[[], None]) -> float:
    """Return the longest time of a command of another client while `event` runs."""
    loads: list[LoadResult] = []
    ready = threading.Event()

    def load() -> None:
        try:
            loads.append(bench.load(server, 1, 1, ready.set, tube_per_connection=True))
        finally:
            ready.set()

    other = threading.Thread(target=load)
    other.start()
    ready.wait()
    time.sleep(bench.settings.warmup * 2)
    event()
    other.join()
    if not loads:
        raise BenchError("the load beside the command failed")
    return loads[0].max_us


def measure_listing(bench: Bench, spec: ServerSpec) -> Figures:
    """List all jobs of a tube, page by page."""
    jobs = bench.settings.memory_jobs
    with running(spec, bench.folder) as server, client(server) as lister:
        bench.fill(server, jobs)

        def pages() -> None:
            after, end = b"0", time.monotonic() + bench.settings.seconds / 2
            while time.monotonic() < end:
                head = lister.ask(b"list-jobs default any %b %d\r\n" % (after, LISTED_PAGE))
                if not head.startswith(b"OK "):
                    raise BenchError(f"list-jobs was answered {head!r}")
                page = lister.read(int(head.split()[1]) + 2)
                after = page.rpartition(b"next: ")[2].strip()

        quiet = [longest_us(bench, server, lambda: None) for _ in range(PAIRS)]
        busy = [longest_us(bench, server, pages) for _ in range(PAIRS)]
    return {"longest without": statistics.median(quiet), "longest": statistics.median(busy)}


def measure_waiters(bench: Bench, spec: ServerSpec) -> Figures:
    """Let many clients wait for one job, and delete it."""
    check_descriptors(WAITERS)
    answered: list[float] = []
    longest: list[float] = []
    with running(spec, bench.folder) as server, contextlib.ExitStack() as stack:
        producer = stack.enter_context(client(server))
        waiters = [stack.enter_context(client(server)) for _ in range(WAITERS)]
        for _ in range(PAIRS):
            job = producer.ask(b"put 0 0 60 0\r\n\r\n").split()[1]
            for one in waiters:
                one.send(b"wait 600 %b\r\n" % job)
            time.sleep(SETTLE_SECONDS)

            def end(job: bytes = job) -> None:
                begun = time.perf_counter()
                producer.expect(b"delete %b\r\n" % job, b"DELETED")
                for one in waiters:
                    if one.ask(b"", 1) != b"DELETED %b\r\n" % job:
                        raise BenchError("a wait was not answered with DELETED")
                answered.append((time.perf_counter() - begun) * 1000)

            longest.append(longest_us(bench, server, end))
    return {"answered": statistics.median(answered), "longest": statistics.median(longest)}


def scenario(
    name: str,
    help_text: str,
    measure: Callable[[Bench, ServerSpec], Figures],
    *figures: Figure,
) -> Scenario:
    return Scenario(name, help_text, measure, figures, slow=True, ours_only=True, placement=FREE)


EXTENSION_SCENARIOS: tuple[Scenario, ...] = (
    scenario(
        "unique",
        "puts with a key each, against puts without, beside many jobs with keys",
        measure_unique,
        Figure("16x1: CPU", "x", "ours <= 1.15"),
        Figure("16x1: time", "x"),
        Figure("64x32: CPU", "x", "ours <= 2"),
        Figure("64x32: time", "x"),
    ),
    scenario(
        "policies",
        f"{POLICIES} policies that do not apply, against none",
        measure_policies,
        Figure("16x1: CPU", "x", "ours <= 1.02"),
        Figure("64x32: CPU", "x", "ours <= 1.02"),
        Figure("tube creation: CPU", "x", "ours <= 1.1"),
    ),
    scenario(
        "rate",
        f"clients of a tube with a rate of {RATE_PER_S}/s for {RATE_SECONDS:g} s",
        measure_rate,
        *(
            figure
            for clients in RATE_CLIENTS
            for figure in (
                Figure(f"{clients} clients: rate", "x", "ours >= 0.98"),
                Figure(f"{clients} clients: CPU", "us/job"),
            )
        ),
    ),
    scenario(
        "listing",
        "the longest command of another client while list-jobs reads the jobs of a tube",
        measure_listing,
        Figure("longest without", "us"),
        Figure("longest", "us", "ours <= 5000"),
    ),
    scenario(
        "waiters",
        f"{WAITERS} clients wait for one job, and the longest command of another client",
        measure_waiters,
        Figure("answered", "ms", "ours <= 150"),
        Figure("longest", "us", "ours <= 5000"),
    ),
)
