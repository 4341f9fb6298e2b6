"""`beanstalkd-py bench`: load on a server, with its throughput and latency."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli import output
from beanstalkd_py.cli.argument_types import Number, Seconds
from beanstalkd_py.cli.connection_options import CONTEXT, Server, TubeType, server_options
from beanstalkd_py.cli.formatting import short_number
from beanstalkd_py.cli.interrupts import exit_by_signal, handled
from beanstalkd_py.cli.options import count_option, option
from beanstalkd_py.plural import counted

if TYPE_CHECKING:
    from beanstalkd_py.admin.load import LoadOptions, LoadResult

MAX_CONNECTIONS = 100_000
MAX_DEPTH = 10_000
MAX_BODY = 1 << 30
DEFAULT_CONNECTIONS = 16

_connections_option = partial(count_option, maximum=MAX_CONNECTIONS)


@click.command(context_settings=CONTEXT)
@_connections_option(
    "--connections",
    "Connections that put, reserve and delete.  [default:"
    f" {DEFAULT_CONNECTIONS}, or 0 with --producers]",
    "connections",
)
@_connections_option("--producers", "Connections that only put.", "producers", default=0)
@_connections_option(
    "--consumers", "Connections that reserve with a wait, and delete.", "consumers", default=0
)
@count_option(
    "--depth", "Pipelined commands of each connection.", "commands", 1, MAX_DEPTH, default=1
)
@count_option(
    "--size body_bytes", "Size of a job's body.", "bytes", 0, MAX_BODY, metavar="BYTES", default=100
)
@option("--seconds", "Duration of the measurement.", Seconds(), metavar="S", default=5.0)
@option(
    "--warmup warmup_s",
    "Duration before the measurement.",
    Seconds(zero_allowed=True),
    metavar="S",
    default=1.0,
)
@option(
    "--rate",
    "Puts per second of all connections together.  [default: unlimited]",
    Number("jobs per second", minimum=1, maximum=10**9),
    metavar="JOBS",
    default=0,
)
@option("--tube", "Name of the tube.  [default: a new name]", TubeType())
@count_option(
    "--tubes",
    "Distribute the connections over N tubes, NAME.0 to NAME.N-1.",
    "tubes",
    minimum=1,
    maximum=10_000,
    default=1,
)
@option("--yes", "Do not ask for confirmation for a server on another machine.", is_flag=True)
@server_options(json="Print a JSON object; times in microseconds.")
def bench(
    server: Server,
    as_json: bool,
    connections: int | None,
    rate: int,
    tube: str | None,
    tubes: int,
    yes: bool,
    **settings: Any,
) -> None:
    """Run a load on a server; print its throughput and latency.

    Each connection sends --depth commands of one kind, waits for their replies, and continues with
    the next kind. Latency is measured at the client, from sending to the last byte of the reply.
    With --rate the latency of puts starts when the put was due, so that pauses of the server count.
    Reserves of --consumers include the wait for a job.

    The load uses tubes of its own. It rejects tubes that have jobs or other clients, and removes
    its jobs at the end, also after Ctrl-C. Its jobs are written to the server's binlog.

    \b
    Examples:
      beanstalkd-py bench
      beanstalkd-py bench --connections 64 --depth 32 --size 1000 --seconds 10
      beanstalkd-py bench --producers 4 --consumers 8 --rate 5000 --json \\
          | jq .put.p99_us
    """
    from beanstalkd_py.admin.load import LoadOptions, is_local, run_load

    producers = settings["producers"]
    if connections is None:
        connections = 0 if producers or settings["consumers"] else DEFAULT_CONNECTIONS
    if not connections and not producers:
        raise click.UsageError("no connection puts jobs; use --connections or --producers")
    name = tube or f"bench-{os.getpid()}-{secrets.token_hex(4)}"
    names = tuple(f"{name}.{number}" for number in range(tubes)) if tubes > 1 else (name,)
    plan = LoadOptions(tubes=names, cycles=connections, rate=float(rate), **settings)
    if server.address.tls:
        text = f"{server.address}: bench does not support TLS; use a port without TLS"
        raise errors.ToolUsageError(text)
    if not yes and not is_local(server.address, server.timeout_s):
        _confirm(server)

    def progress(puts: int) -> None:
        output.show_status(f"{counted(puts)} put by {counted(plan.connections, 'connection')}")

    with handled((signal.SIGTERM,), exit_by_signal):  # so that the load removes its jobs
        result = run_load(server.address, server.timeout_s, plan, progress, output.notice)
    output.show_status("")
    if as_json:
        output.write_json(_as_json(plan, result))
    else:
        _show(plan, result)


def _confirm(server: Server) -> None:
    text = f"{server.address} is on another machine, and the load can slow down its clients"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise errors.ToolUsageError(f"{text}; use --yes to confirm")
    click.confirm(f"{text}. Continue?", abort=True, err=True)


def _show(plan: LoadOptions, result: LoadResult) -> None:
    headings = ("command", "per second", "p50 us", "p90 us", "p99 us", "p99.9 us", "max us")
    rows: list[output.Row] = [
        (
            command.name.lower(),
            round(result.per_s(command)),
            *(round(within * 1e6) for within in times.within),
            round(times.max_s * 1e6),
        )
        for command, times in result.times.items()
        if times.count
    ]
    output.write_line(_described(plan))
    output.write_table(output.Table(headings, rows))
    if result.drained:
        output.write_line(f"removed {counted(result.drained)} left at the end")


def _described(plan: LoadOptions) -> str:
    groups = (
        (plan.cycles, "connection"),
        (plan.producers, "producer"),
        (plan.consumers, "consumer"),
    )
    parts = [counted(count, noun) for count, noun in groups if count]
    rate = f", limited to {short_number(plan.rate, 9)} jobs per second" if plan.rate else ""
    return (
        f"{' and '.join(parts)}, depth {plan.depth}, {counted(plan.body_bytes, 'byte')},"
        f" {counted(len(plan.tubes), 'tube')}, {plan.seconds:g} s{rate}"
    )


def _as_json(plan: LoadOptions, result: LoadResult) -> dict[str, Any]:
    from beanstalkd_py.admin.load import QUANTILES

    values: dict[str, Any] = {
        "connections": plan.cycles,
        "producers": plan.producers,
        "consumers": plan.consumers,
        "depth": plan.depth,
        "size": plan.body_bytes,
        "tubes": len(plan.tubes),
        "rate": plan.rate or None,
        "seconds": plan.seconds,
        "removed": result.drained,
    }
    for command, times in result.times.items():
        within = zip(QUANTILES, times.within, strict=True)
        values[command.name.lower()] = {
            "count": times.count,
            "per_s": round(result.per_s(command), 1),
            "mean_us": round(times.mean_s * 1e6, 1),
            **{f"p{100 * share:g}_us".replace(".", ""): round(at * 1e6, 1) for share, at in within},
            "max_us": round(times.max_s * 1e6, 1),
        }
    return values
