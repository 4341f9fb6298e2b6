"""`beanstalkd-py bench`: load on a server, with its throughput and latency."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.connection_options import CONTEXT, Seconds, Server, TubeType, server_options
from beanstalkd_py.cli.formatting import short_number
from beanstalkd_py.cli.number_arguments import Number
from beanstalkd_py.cli.output import (
    Row,
    Table,
    counted,
    notice,
    write_json,
    write_line,
    write_table,
)

if TYPE_CHECKING:
    from beanstalkd_py.admin.load import LoadOptions, LoadResult
    from beanstalkd_py.core.load_generator import Command

MAX_CONNECTIONS = 100_000
MAX_DEPTH = 10_000
MAX_BODY = 1 << 30
DEFAULT_CONNECTIONS = 16
_CLEAR_TO_END = "\x1b[K"


def _connections(what: str) -> Number:
    return Number(f"a number of {what}", maximum=MAX_CONNECTIONS)


@click.command(context_settings=CONTEXT)
@click.option(
    "--connections",
    metavar="N",
    type=_connections("connections"),
    help="Connections that put, reserve and delete.  [default:"
    f" {DEFAULT_CONNECTIONS}, or 0 with --producers]",
)
@click.option(
    "--producers",
    metavar="N",
    type=_connections("producers"),
    default=0,
    help="Connections that only put.",
)
@click.option(
    "--consumers",
    metavar="N",
    type=_connections("consumers"),
    default=0,
    help="Connections that reserve with a wait, and delete.",
)
@click.option(
    "--depth",
    metavar="N",
    type=Number("a number of commands", minimum=1, maximum=MAX_DEPTH),
    default=1,
    show_default=True,
    help="Pipelined commands of each connection.",
)
@click.option(
    "--size",
    metavar="BYTES",
    type=Number("a number of bytes", maximum=MAX_BODY),
    default=100,
    show_default=True,
    help="Size of a job's body.",
)
@click.option(
    "--seconds",
    metavar="S",
    type=Seconds(),
    default=5.0,
    show_default=True,
    help="Duration of the measurement.",
)
@click.option(
    "--warmup",
    metavar="S",
    type=Seconds(zero_allowed=True),
    default=1.0,
    show_default=True,
    help="Duration before the measurement.",
)
@click.option(
    "--rate",
    metavar="JOBS",
    type=Number("jobs per second", minimum=1, maximum=10**9),
    help="Puts per second of all connections together.  [default: unlimited]",
)
@click.option("--tube", type=TubeType(), help="Name of the tube.  [default: a new name]")
@click.option(
    "--tubes",
    metavar="N",
    type=Number("a number of tubes", minimum=1, maximum=10_000),
    default=1,
    show_default=True,
    help="Distribute the connections over N tubes, NAME.0 to NAME.N-1.",
)
@click.option(
    "--yes", is_flag=True, help="Do not ask for confirmation for a server on another machine."
)
@server_options(json="Print a JSON object; times in microseconds.")
def bench(
    server: Server,
    as_json: bool,
    connections: int | None,
    producers: int,
    consumers: int,
    depth: int,
    size: int,
    seconds: float,
    warmup: float,
    rate: int | None,
    tube: str | None,
    tubes: int,
    yes: bool,
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

    cycles = connections
    if cycles is None:
        cycles = 0 if producers or consumers else DEFAULT_CONNECTIONS
    if not cycles and not producers:
        raise click.UsageError("no connection puts jobs; use --connections or --producers")
    name = tube or f"bench-{os.getpid()}-{secrets.token_hex(4)}"
    plan = LoadOptions(
        tubes=tuple(f"{name}.{number}" for number in range(tubes)) if tubes > 1 else (name,),
        cycles=cycles,
        producers=producers,
        consumers=consumers,
        depth=depth,
        body_bytes=size,
        warmup_s=warmup,
        seconds=seconds,
        rate=float(rate or 0),
    )
    if server.address.tls:
        text = f"{server.address}: bench does not support TLS; use a port without TLS"
        raise errors.ToolUsageError(text)
    if not yes and not is_local(server.address, server.timeout_s):
        _confirm(server)
    with _exit_on_sigterm():
        result = run_load(server.address, server.timeout_s, plan, _progress(plan), notice)
    if sys.stderr.isatty():
        click.echo(f"\r{_CLEAR_TO_END}", err=True, nl=False)
    if as_json:
        write_json(_as_json(plan, result))
    else:
        _show(plan, result)


@contextlib.contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Raise SystemExit on SIGTERM, so that the load removes its jobs."""
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _confirm(server: Server) -> None:
    text = f"{server.address} is on another machine, and the load can slow down its clients"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise errors.ToolUsageError(f"{text}; use --yes to confirm")
    click.confirm(f"{text}. Continue?", abort=True, err=True)


def _progress(plan: LoadOptions) -> Any:
    if not sys.stderr.isatty():
        return lambda _: None

    def show(puts: int) -> None:
        text = f"{counted(puts)} put by {counted(plan.connections, 'connection')}"
        click.echo(f"\r{text}{_CLEAR_TO_END}", err=True, nl=False)

    return show


def _names() -> dict[Command, str]:
    from beanstalkd_py.core.load_generator import Command

    return {
        Command.PUT: "put",
        Command.RESERVE: "reserve",
        Command.DELETE: "delete",
        Command.ALL: "all",
    }


def _show(plan: LoadOptions, result: LoadResult) -> None:
    headings = ("command", "per second", "p50 us", "p90 us", "p99 us", "p99.9 us", "max us")
    rows: list[Row] = [
        (
            name,
            round(result.per_s(command)),
            *(round(within * 1e6) for within in result.times[command].within),
            round(result.times[command].max_s * 1e6),
        )
        for command, name in _names().items()
        if result.times[command].count
    ]
    write_line(_described(plan))
    write_table(Table(headings, rows))
    if result.drained:
        write_line(f"removed {counted(result.drained)} left at the end")


def _described(plan: LoadOptions) -> str:
    kinds = (
        (plan.cycles, "connection"),
        (plan.producers, "producer"),
        (plan.consumers, "consumer"),
    )
    parts = [counted(count, what) for count, what in kinds if count]
    rate = f", limited to {short_number(plan.rate, 9)} jobs per second" if plan.rate else ""
    return (
        f"{' and '.join(parts)}, depth {plan.depth}, {counted(plan.body_bytes, 'byte')},"
        f" {counted(len(plan.tubes), 'tube')}, {plan.seconds:g} s{rate}"
    )


def _as_json(plan: LoadOptions, result: LoadResult) -> dict[str, Any]:
    from beanstalkd_py.admin.load import QUANTILES

    found: dict[str, Any] = {
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
    for command, name in _names().items():
        times = result.times[command]
        within = zip(QUANTILES, times.within, strict=True)
        found[name] = {
            "count": times.count,
            "per_s": round(result.per_s(command), 1),
            "mean_us": round(times.mean_s * 1e6, 1),
            **{_percentile(share): round(at * 1e6, 1) for share, at in within},
            "max_us": round(times.max_s * 1e6, 1),
        }
    return found


def _percentile(share: float) -> str:
    """Return p50_us, p999_us, ..."""
    return f"p{100 * share:g}_us".replace(".", "")
