"""The command line of tools/bench."""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from . import BenchError
from .backlog import BACKLOG_SCENARIOS
from .extensions import EXTENSION_SCENARIOS
from .history import HISTORY_SCENARIOS
from .load import PYTHON
from .placement import PLACEMENTS, placement
from .processes import machine_facts
from .replication import REPLICATION_SCENARIOS
from .report import Row, markdown_table, number, rows_of, text_table, write_json
from .scenarios import SCENARIOS as SINGLE_SCENARIOS
from .scenarios import Bench, Figures, Scenario, Settings, cleaned
from .servers import ServerSpec
from .shards import SHARD_SCENARIOS

SCENARIOS = (
    *SINGLE_SCENARIOS,
    *SHARD_SCENARIOS,
    *HISTORY_SCENARIOS,
    *BACKLOG_SCENARIOS,
    *EXTENSION_SCENARIOS,
    *REPLICATION_SCENARIOS,
)

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"

PLACEMENT_HELP = (
    "cores of generator and server: scheduler's choice, generator alone on the last core, or both "
    "on it (default: apart for Nx1, else free)"
)

QUIET_LOAD = 0.5

EXIT_FAILED = 1
EXIT_UNMET = 3


def scenario_list() -> str:
    lines = ["scenarios (default: those without *; `all` runs every one):"]
    for scenario in SCENARIOS:
        mark = "*" if scenario.slow else " "
        lines.append(f"  {mark}{scenario.name:<16} {scenario.help}")
    lines.append("")
    lines.append("Exit status: 0 measured, 1 something could not be measured, 2 usage,")
    lines.append("3 a target was missed (only with --strict).")
    return "\n".join(lines)


def default_command() -> str:
    # One worker, as C beanstalkd; scenarios with several workers override it. -P: use the installed
    # package, not the one in the current folder.
    return shlex.join([PYTHON, "-P", "-m", "beanstalkd_py", "serve", "--workers", "1"])


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench",
        description="Put the same load alternately on beanstalkd_py and on beanstalkd.",
        epilog=scenario_list(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("scenarios", nargs="*", metavar="SCENARIO", help="what to measure")
    add("--ours", default=default_command(), help="command of beanstalkd_py (%(default)s)")
    add("--reference", default="/usr/bin/beanstalkd", help="command of beanstalkd (%(default)s)")
    add("--rounds", type=positive, default=5, help="pairs of runs (%(default)s)")
    add("--slow-rounds", type=positive, default=3, help="the same with * (%(default)s)")
    add("--seconds", type=float, default=2.0, help="seconds measured in a run (%(default)s)")
    add("--warmup", type=float, default=0.3, help="seconds before that (%(default)s)")
    add("--body", type=positive, default=100, help="bytes of a job's body (%(default)s)")
    add("--placement", choices=PLACEMENTS, help=PLACEMENT_HELP)
    add("--tube-per-connection", action="store_true", help="instead of one tube for all")
    add("--tubes", type=positive, default=30_000, help="tubes of `tubes` (%(default)s)")
    add(
        "--memory-jobs",
        type=positive,
        default=1_000_000,
        help="jobs of `memory` and `listing` (%(default)s)",
    )
    add("--heap-jobs", type=positive, default=1_000_000, help="jobs of `heap` (%(default)s)")
    add("--heap-priorities", type=positive, default=1_000_000, help="their priorities")
    add("--heap-both", action="store_true", help="also measure `heap` of the reference")
    add("--idle", type=positive, default=10_000, help="connections of `idle` (%(default)s)")
    add("--restart-jobs", type=positive, default=1_000_000, help="jobs of `restart` (%(default)s)")
    add("--backlog-jobs", type=positive, default=1_000_000, help="jobs of `backlog` (%(default)s)")
    add("--unique-keys", type=positive, default=10_000_000, help="keys of `unique` (%(default)s)")
    add("--folder", type=Path, default=BUILD / "bench", help="for binlogs (%(default)s)")
    add("--json", type=Path, metavar="FILE", help="also write every sample to FILE")
    add("--markdown", action="store_true", help="print the table as Markdown")
    add("--strict", action="store_true", help="exit with 3 if a target was missed")
    return parser


def positive(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def chosen_scenarios(names: Sequence[str]) -> list[Scenario]:
    if not names:
        return [scenario for scenario in SCENARIOS if not scenario.slow]
    if "all" in names:
        return list(SCENARIOS)
    known = {scenario.name: scenario for scenario in SCENARIOS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise BenchError(f"no such scenario: {', '.join(unknown)} (see --help)")
    return [known[name] for name in names]


def settings_from(options: argparse.Namespace) -> Settings:
    return Settings(
        seconds=options.seconds,
        warmup=options.warmup,
        body_bytes=options.body,
        tubes=options.tubes,
        memory_jobs=options.memory_jobs,
        heap_jobs=options.heap_jobs,
        heap_priorities=options.heap_priorities,
        idle=options.idle,
        restart_jobs=options.restart_jobs,
        backlog_jobs=options.backlog_jobs,
        unique_keys=options.unique_keys,
        own_tubes=options.tube_per_connection,
    )


def report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure(
    bench: Bench, scenario: Scenario, sides: Sequence[ServerSpec], rounds: int
) -> list[Row]:
    """Measure both sides alternately, so that a slow minute of the machine affects both.

    The one that is measured first changes in each round, because it may be at a disadvantage.
    """
    samples: dict[str, list[Figures]] = {spec.name: [] for spec in sides}
    for turn in range(1, rounds + 1):
        for spec in sides if turn % 2 else tuple(reversed(sides)):
            figures = scenario.measure(bench, spec)
            samples[spec.name].append(figures)
            shown = ", ".join(f"{key} {number(value)}" for key, value in figures.items())
            report(f"{scenario.name} {turn}/{rounds} {spec.name}: {shown}")
    return rows_of(scenario, samples["ours"], samples.get("reference", []))


def measure_all(options: argparse.Namespace) -> tuple[list[Row], bool]:
    scenarios = chosen_scenarios(options.scenarios)
    ours = ServerSpec("ours", tuple(shlex.split(options.ours)), ROOT)
    reference = ServerSpec("reference", tuple(shlex.split(options.reference)), ROOT)
    bench = Bench(settings_from(options), options.folder, reference)
    rows: list[Row] = []
    failed = False
    with cleaned(bench):
        for scenario in scenarios:
            alone = scenario.ours_only and not options.heap_both
            sides = (ours,) if alone else (ours, reference)
            rounds = options.slow_rounds if scenario.slow else options.rounds
            try:
                placed = placement(options.placement or scenario.placement)
                bench.generator_cpus = placed.generator
                placed_sides = [replace(spec, cpus=placed.server) for spec in sides]
                rows += measure(bench, scenario, placed_sides, rounds)
            except BenchError as problem:
                report(f"{scenario.name}: {problem}")
                failed = True
    return rows, failed


def prepare_folders(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    BUILD.mkdir(exist_ok=True)
    # Files in a build folder are never committed.
    (BUILD / ".gitignore").write_text("*\n")
    # The servers inherit the limit: 10,000 connections need more than the usual 1,024 descriptors.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(arguments: Sequence[str] | None = None) -> int:
    options = build_parser().parse_args(arguments)
    try:
        prepare_folders(options.folder)
        if os.getloadavg()[0] > QUIET_LOAD:
            report(
                f"bench: load average {os.getloadavg()[0]:.2f}: other processes run, expect noise"
            )
        machine = machine_facts(options.folder)
        rows, failed = measure_all(options)
    except BenchError as problem:
        report(f"bench: {problem}")
        return EXIT_FAILED
    except KeyboardInterrupt:
        return 128 + 2
    print(machine)
    print()
    print(markdown_table(rows) if options.markdown else text_table(rows))
    if options.json is not None:
        facts: dict[str, object] = {
            "machine": machine,
            "ours": options.ours,
            "reference": options.reference,
            "seconds": options.seconds,
        }
        write_json(options.json, facts, rows)
    if failed:
        return EXIT_FAILED
    unmet = any(row.met is False for row in rows)
    return EXIT_UNMET if options.strict and unmet else 0
