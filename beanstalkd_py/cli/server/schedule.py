"""`beanstalkd-py schedule`: show schedules and their next ticks, and put a job at once."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypedDict

import click

from beanstalkd_py.cli import output
from beanstalkd_py.cli.command_group import CommandGroup
from beanstalkd_py.cli.connection_options import CONTEXT
from beanstalkd_py.cli.options import count_option, file_option
from beanstalkd_py.cli.server.administration import Connect, control_options

MOST_TICKS = 10_000

ScheduleRow = TypedDict(
    "ScheduleRow",
    {
        "name": str,
        "cron": str,
        "timezone": str,
        "tube": str,
        "last-put": int,
        "next-tick": int,
        "puts": int,
        "errors": int,
        "error": str,
    },
)
"""A part of the answer to `schedules`, as far as tables need it."""


@dataclass(frozen=True, slots=True)
class TickSource:
    """A schedule as far as its ticks need it."""

    name: str
    cron: str
    timezone: str


@click.group(cls=CommandGroup, context_settings=CONTEXT)
def schedule() -> None:
    """Show schedules and their next ticks, or put a job at once.

    Schedules are tables of the configuration file, such as [schedule.nightly].
    """


@schedule.command(name="list")
@control_options(json="Print a JSON array with an object for each schedule.")
def list_(connect: Connect, as_json: bool) -> None:
    """Show the schedules of a running server.

    Ticks are in the time zone of the schedule. Puts and errors count since the start of the server.
    The last column is the error of the last attempt, if that failed.

    In JSON all settings are shown, and ticks are seconds since the epoch.

    \b
    Example:
      beanstalkd-py schedule list
    """
    with connect() as control:
        rows: list[ScheduleRow] = list(control.parts("schedules"))
    if as_json:
        output.write_json(rows)
        return
    headings = ("schedule", "cron", "tube", "last", "next", "puts", "errors", "error")
    output.write_table(output.Table(headings, [_cells(row) for row in rows]))


def _cells(row: ScheduleRow) -> output.Row:
    zone = row["timezone"]
    ticks = (_local(row["last-put"], zone), _local(row["next-tick"], zone))
    numbers = (row["puts"], row["errors"])
    return (row["name"], row["cron"], row["tube"], *ticks, *numbers, row["error"] or "-")


def _local(tick: int, timezone: str) -> str:
    """Return 2026-11-25T02:00:00+01:00, or - for no tick."""
    from datetime import datetime

    from beanstalkd_py.schedules.ticks import find_zone

    return datetime.fromtimestamp(tick, find_zone(timezone)).isoformat() if tick else "-"


@schedule.command(name="next")
@click.argument("name", required=False)
@count_option("-n --count", "Number of ticks.", "ticks", minimum=1, maximum=MOST_TICKS, default=10)
@file_option("--config", "Read this configuration file instead of asking a server.")
@control_options(json="Print a JSON array with an object for each tick: schedule, tick, time.")
def next_(
    connect: Connect, as_json: bool, name: str | None, count: int, config: str | None
) -> None:
    """Show the next ticks of all schedules, or of NAME.

    Ticks are in the time zone of the schedule, and in UTC. In JSON, tick is in seconds since 1970.

    \b
    Examples:
      beanstalkd-py schedule next nightly -n 3
      beanstalkd-py schedule next --config /etc/beanstalkd-py.toml
    """
    sources = _of_file(config) if config else _of_server(connect)
    if name is not None:
        sources = [source for source in sources if source.name == name]
        if not sources:
            raise click.UsageError(f"no schedule {name!r}")
    ticks = itertools.islice(heapq.merge(*map(_ticks_of, sources)), count)
    zones = {source.name: source.timezone for source in sources}
    rows = [(each, _local(tick, zones[each]), tick) for tick, each in ticks]
    if as_json:
        keys = ("schedule", "time", "tick")
        output.write_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    cells: list[output.Row] = [(each, local, _local(tick, "UTC")) for each, local, tick in rows]
    output.write_table(output.Table(("schedule", "tick", "utc"), cells))


def _ticks_of(source: TickSource) -> Iterator[tuple[int, str]]:
    """Yield the ticks from now on, with the name of the schedule."""
    from beanstalkd_py.schedules.ticks import Ticks

    ticks = Ticks(source.cron, source.timezone)
    tick: int | None = int(time.time())
    while tick is not None and (tick := ticks.after(tick)) is not None:
        yield tick, source.name


def _of_server(connect: Connect) -> list[TickSource]:
    with connect() as control:
        rows: list[ScheduleRow] = list(control.parts("schedules"))
    return [TickSource(row["name"], row["cron"], row["timezone"]) for row in rows]


def _of_file(path: str) -> list[TickSource]:
    from beanstalkd_py.cli.server.config import options_of

    schedules = options_of(path).schedules
    return [TickSource(one.name, one.cron, one.timezone) for one in schedules]


@schedule.command()
@click.argument("name")
@control_options(json="Print a JSON object: id.")
def run(connect: Connect, as_json: bool, name: str) -> None:
    """Put the job of a schedule now.

    Its ticks stay as they are.

    \b
    Example:
      beanstalkd-py schedule run nightly
    """
    with connect() as control:
        reply = control.ask("schedule-run", name=name)
    output.write_result(as_json, reply, f"job {reply['id']}")
