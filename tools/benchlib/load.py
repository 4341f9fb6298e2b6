"""Run the load generator, and read its measurements."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from . import BenchError
from .placement import Cpus, children_on
from .servers import Server

TOOLS = Path(__file__).resolve().parents[1]
VENV_PYTHON = TOOLS.parent / ".venv/bin/python"
PYTHON = str(VENV_PYTHON) if VENV_PYTHON.exists() else sys.executable
"""The interpreter that has the package."""


@dataclass(frozen=True)
class LoadPlan:
    """One run of the generator. A cycle is put, reserve, delete; `inflight` commands are pipelined.

    Before the load it puts `fill` jobs, with `pri_spread` random priorities, makes `prefill_tubes`
    with one delayed job each, and opens `idle` connections. With `take` one connection reserves and
    deletes that many jobs instead of cycles, and puts as many back. With `watch` each connection
    watches that many tubes, over which the `fill` jobs are spread in turn, and reserves and deletes
    until no job is left. With `unique` every put has a key of its own, also those before the load.
    With `puts_only` the load leaves its jobs in the server. `seconds` 0 only prepares.
    """

    connections: int = 1
    inflight: int = 1
    seconds: float = 1.0
    warmup: float = 0.3
    body: int = 100
    idle: int = 0
    prefill_tubes: int = 0
    fill: int = 0
    pri_spread: int = 1
    take: int = 0
    tube_per_connection: bool = False
    watch: int = 0
    unique: bool = False
    puts_only: bool = False


@dataclass(frozen=True)
class LoadResult:
    """The measurements of the clients, and the server's CPU time during the load."""

    commands: int
    ops_per_s: float
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float
    generator_busy_percent: float
    server_cpu_us_per_op: float


def run_load(
    server: Server,
    plan: LoadPlan,
    cpus: Cpus | None = None,
    when_ready: Callable[[], None] | None = None,
) -> LoadResult:
    """Prepare, call `when_ready` when all connections are open but idle, then apply the load."""
    arguments = [str(server.port), json.dumps(asdict(plan))]
    command = [PYTHON, "-P", "-m", "benchlib.generator", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(TOOLS)}
    pipe = subprocess.PIPE
    with children_on(cpus):
        generator = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=environment, cwd="/"
        )
    with generator:
        assert generator.stdin is not None and generator.stdout is not None
        try:
            line = generator.stdout.readline()
            before_ns = after_ns = 0
            if line == "ready\n":
                if when_ready is not None:
                    when_ready()
                before_ns = server.cpu_ns()
                generator.stdin.write("go\n")
                generator.stdin.flush()
                line = generator.stdout.readline()
                after_ns = server.cpu_ns()
        except BaseException:
            generator.kill()
            raise
    if generator.returncode != 0:
        reason = json.loads(line)["error"] if line.startswith("{") else "no result"
        raise BenchError(f"the load failed ({generator.returncode}): {reason}")
    result = json.loads(line)
    commands = result["commands"]
    cpu_us = (after_ns - before_ns) / 1000
    return LoadResult(**result, server_cpu_us_per_op=cpu_us / commands if commands else 0.0)
