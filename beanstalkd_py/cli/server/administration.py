"""Commands for which the protocol has no words, by the control socket of a server on this machine.

They are refused to anybody but the server's own user and root.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.connection_options import CONTEXT, Server, on_server
from beanstalkd_py.cli.formatting import short_number
from beanstalkd_py.cli.output import Table, say, write_json, write_line, write_table
from beanstalkd_py.cli.path_completion import complete_file
from beanstalkd_py.plural import counted

MIB = 1 << 20

Connect = Callable[[], Any]


def on_control_socket(json: str) -> Callable[[Any], Any]:
    """Adds --addr, --timeout, --json and --control; the command gets `connect` and `as_json`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def command(*args: Any, server: Server, control: str | None, **settings: Any) -> Any:
            from beanstalkd_py.control.client import ControlClient

            if control:
                reach: Connect = partial(ControlClient, Path(control), server.timeout_s)
            else:
                reach = partial(_connect, server)
            return function(*args, connect=reach, **settings)

        place = click.option(
            "--control",
            metavar="PATH",
            shell_complete=complete_file,
            envvar="BEANSTALKD_CONTROL",
            show_envvar=True,
            help="The control socket; otherwise it is looked for by the port of --addr.",
        )
        decorated: Callable[..., Any] = on_server(json=json)(place(command))
        return decorated

    return decorate


def _connect(server: Server) -> Any:
    """The server on this address. Without one, what answers there may be none of ours."""
    from beanstalkd_py.control.client import connect

    try:
        return connect(str(server.address), server.timeout_s)
    except errors.NoControlError as error:
        from beanstalkd_py.admin.foreign_peer import probe_plain

        if known := probe_plain(server.address, server.timeout_s):
            raise errors.NoConnectionError(known) from error
        raise


@click.command(context_settings=CONTEXT)
@on_control_socket(json="A JSON list with an object for each worker.")
def workers(connect: Connect, as_json: bool) -> None:
    """Show the worker processes: what each does, costs and has.

    CPU is in seconds, memory and mesh traffic (what workers say to each other) in bytes. A worker
    is `starting` while it reads its binlog, `serving`, `waiting` for its next start, or `stopping`.

    \b
    Examples:
      beanstalkd-py workers
      beanstalkd-py workers --json | jq '.[].pid'
    """
    with connect() as control:
        rows = list(control.parts("workers"))
    if as_json:
        write_json(rows)
        return
    # Two tables, because all columns in one do not fit into 80 characters.
    headings = ("worker", "state", "since", "pid", "restarts", "cpu s", "memory MiB", "conns")
    write_table(Table(headings, [_process_cells(row) for row in rows]))
    write_line("")
    headings = ("worker", "tubes", *_JOB_STATES, "mesh in", "mesh out")
    write_table(Table(headings, [_queue_cells(row) for row in rows]))


_JOB_STATES = ("ready", "reserved", "delayed", "buried")
_WIDTH = 8
"""Characters of a number in the second table."""


def _process_cells(row: dict[str, Any]) -> tuple[str | int | float, ...]:
    return (
        row["worker"],
        row["state"],
        duration(row["since-s"]),
        row["pid"],
        row["restarts"],
        row["cpu-s"],
        round(row["memory-bytes"] / MIB, 1),
        row["connections"],
    )


def _queue_cells(row: dict[str, Any]) -> tuple[str | int, ...]:
    keys = ("tubes", *(f"jobs-{state}" for state in _JOB_STATES), "mesh-in-bytes", "mesh-out-bytes")
    return (row["worker"], *(_short(row[key]) for key in keys))


def _short(number: int) -> str | int:
    return number if number < 10**_WIDTH else short_number(number, _WIDTH).rjust(_WIDTH)


def duration(seconds: float) -> str:
    """In the two largest units that it has."""
    whole = int(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days}d{hours:02}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{whole % 60:02}s" if minutes else f"{whole}s"


@click.command(context_settings=CONTEXT)
@on_control_socket(json="A JSON list with an object for each connection.")
def conns(connect: Connect, as_json: bool) -> None:
    """Show each connection: its address, tubes, wait and jobs.

    A connection that has said nothing yet uses nothing, and is only counted. Of tubes and jobs the
    first few are shown.

    \b
    Examples:
      beanstalkd-py conns
      beanstalkd-py conns --json | jq '.[] | select(.holds > 0)'
    """
    with connect() as control:
        *rows, last = control.answers("conns")
    if as_json:
        write_json(rows)
        return
    headings = ("from", "worker", "use", "watch", "waits", "holds", "jobs", "unread", "unsent")
    write_table(Table(headings, [_connection_cells(row) for row in rows]))
    if last["silent"]:
        say(f"{last['silent']} more have said nothing yet")


def _connection_cells(row: dict[str, Any]) -> tuple[str | int, ...]:
    more = row["watching"] - len(row["watch"])
    watched = ",".join(row["watch"]) + (f",+{more}" if more else "")
    waits = "-"
    if row["waits"]:
        waits = "for ever" if row["waits-s"] is None else f"{row['waits-s']:.0f}s"
    jobs = ",".join(map(str, row["jobs"]))
    if row["holds"] > len(row["jobs"]):
        jobs += ",..."
    return (
        *(row["from"], row["worker"], row["use"], watched, waits, row["holds"], jobs or "-"),
        *(row["unread-bytes"], row["unsent-bytes"]),
    )


@click.command(context_settings=CONTEXT)
@click.argument("state", metavar="[on|off]", type=click.Choice(["on", "off"]), required=False)
@on_control_socket(json="A JSON object with `draining`.")
def drain(connect: Connect, as_json: bool, state: str | None) -> None:
    """Refuse new jobs (on), accept them again (off), or show which.

    While it drains, put is answered DRAINING; everything else goes on.

    \b
    Examples:
      beanstalkd-py drain on
      beanstalkd-py drain
    """
    with connect() as control:
        wanted = {} if state is None else {"on": state == "on"}
        found = control.ask("drain", **wanted)
    if as_json:
        write_json(found)
    else:
        write_line("draining: puts are refused" if found["draining"] else "puts are taken")


@click.command(context_settings=CONTEXT)
@on_control_socket(json="A JSON object with `applied` and `waiting`, both by option.")
def reload(connect: Connect, as_json: bool) -> int:
    """Make the server read its options again.

    It reads its file and its environment. What can change while it runs does. The status is 1 if
    something waits for a restart.

    \b
    Example:
      beanstalkd-py reload
    """
    with connect() as control:
        found = control.ask("reload")
    if as_json:
        write_json(found)
    else:
        for name, value in found["applied"].items():
            write_line(f"{name} is {value} now")
        for name, value in found["waiting"].items():
            say(f"{name} {value} needs a restart")
        if not found["applied"] and not found["waiting"]:
            write_line("nothing has changed")
    return 1 if found["waiting"] else 0


@click.command(context_settings=CONTEXT)
@click.option(
    "--ratio",
    metavar="R",
    type=click.FloatRange(1, 100),
    default=1.1,
    show_default=True,
    help="Stop when the files have at most so many times the bytes that are needed.",
)
@on_control_socket(json="A JSON object with `freed-bytes`.")
def compact(connect: Connect, as_json: bool, ratio: float) -> None:
    """Compact the binlogs of a running server.

    It goes from worker to worker. Jobs are moved out of the oldest files, which then go. Clients
    are served meanwhile. It ends when the ratio is reached, or all files that were there when it
    began are gone.

    \b
    Examples:
      beanstalkd-py compact
      beanstalkd-py compact --ratio 2
    """
    with connect() as control:
        freed = 0
        for part in control.answers("compact", ratio=ratio):
            if "freed-bytes" in part:
                freed = part["freed-bytes"]
            elif sys.stderr.isatty():
                click.echo(f"\r{_progress(part, ratio)}\x1b[K", err=True, nl=False)
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", err=True, nl=False)
    if as_json:
        write_json({"freed-bytes": freed})
    else:
        write_line(f"{counted(freed, 'byte')} freed")


def _progress(part: dict[str, int], ratio: float) -> str:
    width = 30
    needed = max(1, part["alive"])
    done = min(1.0, ratio * needed / max(1, part["bytes"]))
    bar = "#" * round(width * done)
    size = f"{part['bytes'] / MIB:.1f} MiB, {part['alive'] / MIB:.1f} needed"
    return f"worker {part['worker']}  [{bar:<{width}}]  {size}"
