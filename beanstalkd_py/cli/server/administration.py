"""Commands that use the control socket of a server on this machine: workers, conns, drain, ...

The server accepts them only from its own user and root.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli import output
from beanstalkd_py.cli.connection_options import CONTEXT, CONTROL_OPTION, Server, server_options
from beanstalkd_py.cli.formatting import short_number, short_time
from beanstalkd_py.cli.options import option
from beanstalkd_py.plural import counted

if TYPE_CHECKING:
    from beanstalkd_py.admin.local_control import ConnectionRow, WorkerRow
    from beanstalkd_py.control.client import ControlClient

MIB = 1 << 20

Connect = Callable[[], "ControlClient"]


def control_options(json: str) -> Callable[[Any], Any]:
    """Add --addr, --timeout, --json and --control; the command gets `connect` and `as_json`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def command(*args: Any, server: Server, control: str | None, **settings: Any) -> Any:
            return function(*args, connect=lambda: _connect(server, control), **settings)

        decorated: Callable[..., Any] = server_options(json=json)(CONTROL_OPTION(command))
        return decorated

    return decorate


def _connect(server: Server, control: str | None) -> ControlClient:
    """Connect to the control socket; name the protocol of a peer that is not a beanstalkd."""
    from beanstalkd_py.control.client import ControlClient, connect

    if control:
        return ControlClient(Path(control), server.timeout_s)
    try:
        return connect(str(server.address), server.timeout_s)
    except errors.NoControlError as error:
        from beanstalkd_py.admin.foreign_peer import probe_plain

        if known := probe_plain(server.address, server.timeout_s):
            raise errors.NoConnectionError(known) from error
        raise


@click.command(context_settings=CONTEXT)
@control_options(json="Print a JSON array with an object for each worker, or choice of --advise.")
@click.option(
    "--advise",
    type=click.IntRange(2, 255),
    metavar="N",
    help="Show how values of --colocate would divide the tubes among N workers.",
)
def workers(connect: Connect, advise: int | None, as_json: bool) -> None:
    """Show the state and resource use of each worker process.

    CPU is in seconds, mesh traffic (between workers) in bytes. The state is `starting` while the
    worker reads its binlog, `serving`, `waiting` before its next start, or `stopping`.

    With --advise, show the choices of --colocate from the best to the worst: how many of the
    present clients would watch tubes of several workers, which costs messages between them, and
    the share of all puts so far that the busiest worker would get.

    \b
    Examples:
      beanstalkd-py workers
      beanstalkd-py workers --json | jq '.[].pid'
      beanstalkd-py workers --advise 4
    """
    with connect() as control:
        if advise is not None:
            _advise(control, advise, as_json)
            return
        rows = list(control.parts("workers"))
    if as_json:
        output.write_json(rows)
        return
    # A single table would not fit into 80 columns.
    headings = ("worker", "state", "since", "pid", "restarts", "cpu s", "memory MiB", "conns")
    output.write_table(output.Table(headings, [_process_cells(row) for row in rows]))
    output.write_line("")
    headings = ("worker", "tubes", "ready", "reserved", "delayed", "buried", "mesh in", "mesh out")
    output.write_table(output.Table(headings, [_queue_cells(row) for row in rows]))


def _advise(control: ControlClient, workers: int, as_json: bool) -> None:
    from beanstalkd_py.admin.placement_advice import choices
    from beanstalkd_py.control.tube_stats import rows

    clients = [row["watch"] for row in control.parts("conns") if len(row["watch"]) > 1]
    puts = {row["name"]: row["puts"] for part in control.parts("tubes") for row in rows(part)}
    ranked = choices(clients, puts, workers)
    if as_json:
        output.write_json([asdict(choice) for choice in ranked])
        return
    table = output.Table(("colocate", "spread clients", "busiest worker"), [])
    for choice in ranked:
        colocate = "none" if choice.colocate is None else choice.colocate
        table.rows.append((colocate, choice.spread, f"{choice.busiest:.0%}"))
    output.write_table(table)
    if not ranked[0].is_balanced(workers):
        output.write_line("no choice divides the load well: few tubes get most of the puts")


_NUMBER_WIDTH = 8
"""Characters of a number in the second table of `workers`."""


def _process_cells(row: WorkerRow) -> output.Row:
    return (
        row["worker"],
        row["state"],
        short_time(int(row["since-s"])),
        row["pid"],
        row["restarts"],
        row["cpu-s"],
        round(row["memory-bytes"] / MIB, 1),
        row["connections"],
    )


def _queue_cells(row: WorkerRow) -> output.Row:
    jobs = (row["jobs-ready"], row["jobs-reserved"], row["jobs-delayed"], row["jobs-buried"])
    numbers = (row["tubes"], *jobs, row["mesh-in-bytes"], row["mesh-out-bytes"])
    return (row["worker"], *map(_short, numbers))


def _short(number: int) -> str | int:
    if number < 10**_NUMBER_WIDTH:
        return number
    return short_number(number, _NUMBER_WIDTH).rjust(_NUMBER_WIDTH)


@click.command(context_settings=CONTEXT)
@control_options(json="Print a JSON array with an object for each connection.")
def conns(connect: Connect, as_json: bool) -> None:
    """Show the address, tubes, wait and jobs of each connection.

    Connections that have sent no command yet are only counted. Long lists of tubes and jobs are
    truncated.

    \b
    Examples:
      beanstalkd-py conns
      beanstalkd-py conns --json | jq '.[] | select(.holds > 0)'
    """
    with connect() as control:
        *rows, last = control.answers("conns")
    if as_json:
        output.write_json(rows)
        return
    headings = ("from", "worker", "use", "watch", "waits", "holds", "jobs", "unread", "unsent")
    output.write_table(output.Table(headings, [_connection_cells(row) for row in rows]))
    if last["silent"]:
        output.notice(f"{counted(last['silent'], 'connection')} not shown: no command received yet")


def _connection_cells(row: ConnectionRow) -> output.Row:
    others = row["watching"] - len(row["watch"])
    watched = ",".join(row["watch"]) + (f",+{others}" if others else "")
    waits = "-"
    if row["waits"]:
        waits = "forever" if row["waits-s"] is None else f"{row['waits-s']:.0f}s"
    jobs = ",".join(map(str, row["jobs"]))
    if row["holds"] > len(row["jobs"]):
        jobs += ",..."
    return (
        *(row["from"], row["worker"], row["use"], watched, waits, row["holds"], jobs or "-"),
        *(row["unread-bytes"], row["unsent-bytes"]),
    )


@click.command(context_settings=CONTEXT)
@click.argument("state", metavar="[on|off]", type=click.Choice(["on", "off"]), required=False)
@control_options(json="Print a JSON object: draining.")
def drain(connect: Connect, as_json: bool, state: str | None) -> None:
    """Reject new jobs (on), accept them (off), or show which.

    While the server drains, it replies DRAINING to put. All other commands work.

    \b
    Examples:
      beanstalkd-py drain on
      beanstalkd-py drain
    """
    with connect() as control:
        details = {} if state is None else {"on": state == "on"}
        reply = control.ask("drain", **details)
    output.write_result(
        as_json, reply, "draining: puts are rejected" if reply["draining"] else "puts are accepted"
    )


@click.command(context_settings=CONTEXT)
@control_options(json="Print a JSON object: applied and waiting, objects by option.")
def reload(connect: Connect, as_json: bool) -> int:
    """Make the server read its options again.

    The server reads its configuration file and applies the options that can change at run time.

    \b
    Example:
      beanstalkd-py reload

    Exit status 1 if a changed option requires a restart.
    """
    with connect() as control:
        reply = control.ask("reload")
    if as_json:
        output.write_json(reply)
    else:
        from beanstalkd_py.server.option_changes import value_text

        for name, value in reply["applied"].items():
            output.write_line(f"{name} is {value_text(name, value)} now")
        for name, value in reply["waiting"].items():
            output.notice(f"{name} {value_text(name, value)} requires a restart")
        if not reply["applied"] and not reply["waiting"]:
            output.write_line("no option has changed")
    return 1 if reply["waiting"] else 0


@click.command(context_settings=CONTEXT)
@option(
    "--ratio",
    "Stop when the size of the files is at most R times the size of live entries.",
    click.FloatRange(1, 100),
    metavar="R",
    default=1.1,
)
@control_options(json="Print a JSON object: freed-bytes.")
def compact(connect: Connect, as_json: bool, ratio: float) -> None:
    """Compact the binlogs of a running server.

    Moves the live jobs out of the oldest files and removes these files, one worker after another,
    while clients are served. Stops at --ratio, or when all files that existed at the start are
    removed.

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
            else:
                output.show_status(_progress(part, ratio))
    output.show_status("")
    output.write_result(as_json, {"freed-bytes": freed}, f"{counted(freed, 'byte')} freed")


def _progress(part: dict[str, int], ratio: float) -> str:
    width = 30
    needed = max(1, part["alive"])
    done = min(1.0, ratio * needed / max(1, part["bytes"]))
    bar = "#" * round(width * done)
    size = f"{part['bytes'] / MIB:.1f} MiB, {part['alive'] / MIB:.1f} live"
    return f"worker {part['worker']}  [{bar:<{width}}]  {size}"
