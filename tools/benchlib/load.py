"""Compile and run the load generator, and read its measurements."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import BenchError
from .placement import Cpus, children_on
from .servers import HOST, Server

CFLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Wshadow", "-Wconversion")
# The source that the generator shares with `beanstalkd-py bench`.
ENGINE = ("load/load_generator", "load/load_replies", "load/quantiles", "base/alloc")
# The generator ends itself long before this limit, which only bounds the wait.
LIMIT_SECONDS = 1800


@dataclass(frozen=True)
class LoadPlan:
    """One run of the generator. All fields but `cpus` are its options; see tools/bench_load.c."""

    connections: int = 1
    inflight: int = 1
    seconds: float = 1.0
    warmup: float = 0.3
    extra: tuple[str, ...] = ()
    cpus: Cpus | None = None

    def arguments(self) -> list[str]:
        return [
            f"--connections={self.connections}",
            f"--inflight={self.inflight}",
            f"--seconds={self.seconds}",
            f"--warmup={self.warmup}",
            f"--limit={LIMIT_SECONDS}",
            *self.extra,
        ]


@dataclass(frozen=True)
class LoadResult:
    """The measurements of the clients, and the server's CPU time during the load."""

    commands: int
    ops_per_s: float
    p50_us: float
    p99_us: float
    p999_us: float
    server_cpu_us_per_op: float
    generator_busy_percent: float


def compile_generator(source: Path, folder: Path) -> Path:
    """Compile the generator if its source is newer; return the path of the binary."""
    binary = folder / "bench_load"
    engine = source.parent.parent / "csrc"
    sources = [source, *(engine / f"{name}.c" for name in ENGINE)]
    newest = max(one.stat().st_mtime for one in [*sources, *engine.rglob("*.h")])
    if binary.exists() and binary.stat().st_mtime >= newest:
        return binary
    # Renamed into place, so that two concurrent runs never start a half-written binary.
    fresh = folder / f"bench_load.{os.getpid()}"
    command = [os.environ.get("CC", "cc"), *CFLAGS, "-I", str(engine), "-o", str(fresh)]
    command += map(str, sources)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as problem:
        raise BenchError(f"cannot run the C compiler: {problem}") from problem
    if done.returncode != 0:
        raise BenchError(f"cannot compile {source}:\n{done.stderr}")
    fresh.replace(binary)
    return binary


def run_load(
    binary: Path, server: Server, plan: LoadPlan, when_ready: Callable[[], None] | None = None
) -> LoadResult:
    """Prepare, call `when_ready` when all connections are open but idle, then apply the load."""
    arguments = [part for option in plan.arguments() for part in option.split("=", 1)]
    command = [str(binary), "--host", HOST, "--port", str(server.port), "--pause", *arguments]
    pipe = subprocess.PIPE
    with children_on(plan.cpus):
        generator = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
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
        raise BenchError(f"the load failed ({generator.returncode}): {error_of(line)}")
    return load_result(json.loads(line), after_ns - before_ns)


def error_of(line: str) -> str:
    return str(json.loads(line)["error"]) if line.startswith("{") else "no result"


def load_result(values: dict[str, float], server_cpu_ns: int) -> LoadResult:
    commands = int(values["commands"])
    return LoadResult(
        commands=commands,
        ops_per_s=values["ops_per_s"],
        p50_us=values["p50_us"],
        p99_us=values["p99_us"],
        p999_us=values["p999_us"],
        server_cpu_us_per_op=server_cpu_ns / 1000 / commands if commands else 0.0,
        generator_busy_percent=values["generator_cpu_us_per_op"] * values["ops_per_s"] / 1e4,
    )
