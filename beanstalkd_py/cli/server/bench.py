"""`beanstalkd-py bench`: a load on anybody's server, and how it was borne."""

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
from beanstalkd_py.cli.connection_options import CONTEXT, Seconds, Server, TubeType, on_server
from beanstalkd_py.cli.formatting import short_number
from beanstalkd_py.cli.number_arguments import Number
from beanstalkd_py.cli.output import Row, Table, counted, say, write_json, write_line, write_table

if TYPE_CHECKING:
    from beanstalkd_py.admin.load import LoadPlan, Outcome
    from beanstalkd_py.core.load_generator import Command

MOST_CONNECTIONS = 100_000
MOST_DEPTH = 10_000
MOST_BODY = 1 << 30
DEFAULT_CONNECTIONS = 16
_BACK = "\r"
_CLEAR_TO_END = "\x1b[K"


class SecondsOrNone(Seconds):
    """The same, or 0."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number; fails as click's types do."""
        return 0.0 if str(value) in ("0", "0.0") else super().convert(value, param, ctx)


def _connections(what: str) -> Number:
    return Number(f"a number of {what}", maximum=MOST_CONNECTIONS)


@click.command(context_settings=CONTEXT)
@click.option(
    "--connections",
    metavar="N",
    type=_connections("connections"),
    help=f"Connections that put, reserve and delete.  [default: {DEFAULT_CONNECTIONS}, or 0 with"
    " --producers]",
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
    help="Connections that reserve, waiting for jobs, and delete.",
)
@click.option(
    "--depth",
    metavar="N",
    type=Number("a number of commands", minimum=1, maximum=MOST_DEPTH),
    default=1,
    show_default=True,
    help="Commands of each connection in flight.",
)
@click.option(
    "--size",
    metavar="BYTES",
    type=Number("a number of bytes", maximum=MOST_BODY),
    default=100,
    show_default=True,
    help="Of a job.",
)
@click.option(
    "--seconds", metavar="S", type=Seconds(), default=5.0, show_default=True, help="Measured time."
)
@click.option(
    "--warmup",
    metavar="S",
    type=SecondsOrNone(),
    default=1.0,
    show_default=True,
    help="Time before that, which is not measured.",
)
@click.option(
    "--rate",
    metavar="JOBS",
    type=Number("jobs per second", minimum=1, maximum=10**9),
    help="Put so many jobs per second, of all connections together, instead of as many as can be.",
)
@click.option("--tube", type=TubeType(), help="The tube.  [default: a fresh name]")
@click.option(
    "--tubes",
    metavar="N",
    type=Number("a number of tubes", minimum=1, maximum=10_000),
    default=1,
    show_default=True,
    help="Share the connections among N tubes, the name and a number each.",
)
@click.option("--yes", is_flag=True, help="Do not ask before a load on another machine.")
@on_server(json="One JSON object; times in microseconds.")
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
    """Put a load on a server; show its throughput and latency.

    Each connection sends --depth commands of one kind, waits for their replies, and goes on to the
    next kind. Times are as the client sees them, from sending to the last byte of the reply; with
    --rate those of puts begin when the put was due, so a server that stops for a second shows it.
    Reserves of --consumers include the wait for a job.

    It works in tubes of its own, refuses those that others use or that have jobs, and removes what
    it has put, also after Ctrl-C. Jobs go through the server's binlog as any others.

    \b
    Examples:
      beanstalkd-py bench
      beanstalkd-py bench --connections 64 --depth 32 --size 1000 --seconds 10
      beanstalkd-py bench --producers 4 --consumers 8 --rate 5000 --json \\
          | jq .put.p99_us
    """
    from beanstalkd_py.admin.load import LoadPlan, is_here, put_load

    cycles = connections
    if cycles is None:
        cycles = 0 if producers or consumers else DEFAULT_CONNECTIONS
    if not cycles and not producers:
        raise click.UsageError("Nobody puts jobs; give --connections or --producers")
    name = tube or f"bench-{os.getpid()}-{secrets.token_hex(4)}"
    plan = LoadPlan(
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
    _check(server)
    if not yes and not is_here(server.address, server.timeout_s):
        _confirm(server)
    with _ended_by_sigterm():
        outcome = put_load(server.address, server.timeout_s, plan, _progress(plan), say)
    if sys.stderr.isatty():
        click.echo(f"{_BACK}{_CLEAR_TO_END}", err=True, nl=False)
    if as_json:
        write_json(_as_json(plan, outcome))
    else:
        _show(plan, outcome)


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """As by Ctrl-C, so that what was put is removed."""
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _check(server: Server) -> None:
    if server.address.tls:
        text = f"{server.address}: the load is plain text, and that port is for TLS"
        raise errors.ToolUsageError(f"{text}; give the address without TLS")


def _confirm(server: Server) -> None:
    text = f"{server.address} is on another machine: a load can slow down whoever works with it"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise errors.ToolUsageError(f"{text}; give --yes if it may")
    click.confirm(f"{text}. Go on?", abort=True, err=True)


def _progress(plan: LoadPlan) -> Any:
    if not sys.stderr.isatty():
        return lambda _: None

    def show(puts: int) -> None:
        text = f"{counted(puts)} put by {counted(plan.connections, 'connection')}"
        click.echo(f"{_BACK}{text}{_CLEAR_TO_END}", err=True, nl=False)

    return show


def _names() -> dict[Command, str]:
    from beanstalkd_py.core.load_generator import Command

    return {
        Command.PUT: "put",
        Command.RESERVE: "reserve",
        Command.DELETE: "delete",
        Command.ALL: "all",
    }


def _show(plan: LoadPlan, outcome: Outcome) -> None:
    headings = ("command", "per second", "p50 us", "p90 us", "p99 us", "p99.9 us", "max us")
    rows: list[Row] = [
        (
            name,
            round(outcome.per_s(command)),
            *(round(within * 1e6) for within in outcome.times[command].within),
            round(outcome.times[command].max_s * 1e6),
        )
        for command, name in _names().items()
        if outcome.times[command].count
    ]
    write_line(_described(plan))
    write_table(Table(headings, rows))
    if outcome.drained:
        write_line(f"{counted(outcome.drained)} left at the end, removed")


def _described(plan: LoadPlan) -> str:
    kinds = (
        (plan.cycles, "connection"),
        (plan.producers, "producer"),
        (plan.consumers, "consumer"),
    )
    parts = [counted(count, what) for count, what in kinds if count]
    rate = f", {short_number(plan.rate, 9)} jobs per second wanted" if plan.rate else ""
    return (
        f"{' and '.join(parts)}, {plan.depth} in flight each, {counted(plan.body_bytes, 'byte')},"
        f" {counted(len(plan.tubes), 'tube')}, {plan.seconds:g} s{rate}"
    )


def _as_json(plan: LoadPlan, outcome: Outcome) -> dict[str, Any]:
    from beanstalkd_py.admin.load import SHARES

    found: dict[str, Any] = {
        "connections": plan.cycles,
        "producers": plan.producers,
        "consumers": plan.consumers,
        "depth": plan.depth,
        "size": plan.body_bytes,
        "tubes": len(plan.tubes),
        "rate": plan.rate or None,
        "seconds": plan.seconds,
        "removed": outcome.drained,
    }
    for command, name in _names().items():
        times = outcome.times[command]
        within = zip(SHARES, times.within, strict=True)
        found[name] = {
            "count": times.count,
            "per_s": round(outcome.per_s(command), 1),
            "mean_us": round(times.mean_s * 1e6, 1),
            **{_percentile(share): round(at * 1e6, 1) for share, at in within},
            "max_us": round(times.max_s * 1e6, 1),
        }
    return found


def _percentile(share: float) -> str:
    """p50_us, p999_us."""
    return f"p{100 * share:g}_us".replace(".", "")
