"""The cost of a history: our server with `--history` compared to itself without, in pairs.

Both servers keep a binlog. The order within a pair alternates.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from .load import LoadResult
from .placement import FREE
from .scenarios import Bench, Figure, Figures, Scenario
from .servers import ServerSpec, running, scratch_folder

PAIRS = 7


def measured(
    bench: Bench, spec: ServerSpec, connections: int, inflight: int, with_history: bool
) -> LoadResult:
    with scratch_folder(bench.folder) as scratch:
        (scratch / "binlog").mkdir()
        options = ["-b", str(scratch / "binlog")]
        if with_history:
            options += ["--history", str(scratch / "history")]
        with running(spec, bench.folder, *options) as server:
            return bench.load(server, connections, inflight)


def measure_history(connections: int, inflight: int) -> Callable[[Bench, ServerSpec], Figures]:
    def measure(bench: Bench, spec: ServerSpec) -> Figures:
        kept: list[float] = []
        costs: list[float] = []
        for pair in range(PAIRS):
            results = {
                has: measured(bench, spec, connections, inflight, has)
                for has in ((False, True) if pair % 2 else (True, False))
            }
            kept.append(results[True].ops_per_s / results[False].ops_per_s)
            costs.append(results[True].server_cpu_us_per_op / results[False].server_cpu_us_per_op)
        return {"throughput kept": statistics.median(kept), "CPU per op": statistics.median(costs)}

    return measure


def history_scenario(connections: int, inflight: int) -> Scenario:
    return Scenario(
        f"history-{connections}x{inflight}",
        f"{connections} connections with {inflight} commands in flight each: --history or not",
        measure_history(connections, inflight),
        (
            Figure("throughput kept", "x", "ours >= 0.9"),
            # Part of this cost is work that the archiver delays while the cores are busy.
            Figure("CPU per op", "x"),
        ),
        placement=FREE,
        slow=True,
        ours_only=True,
    )


HISTORY_SCENARIOS: tuple[Scenario, ...] = (history_scenario(64, 1), history_scenario(64, 32))
