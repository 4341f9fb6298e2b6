"""Commands that look at the server and its tubes, and pause them: stats, tubes, pause, tail."""

from __future__ import annotations

import sys
import time
from collections.abc import Container
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py.cli.connection_options import CONTEXT, Seconds, Server, TubeType, on_server
from beanstalkd_py.cli.jobs.job_commands import JOB_JSON, UINT32_MAX
from beanstalkd_py.cli.number_arguments import Number
from beanstalkd_py.cli.output import (
    Row,
    Table,
    counted,
    readable,
    say,
    write_json,
    write_line,
    write_screen,
    write_table,
)

if TYPE_CHECKING:
    from beanstalkd_py.admin.connection import Connection
    from beanstalkd_py.admin.job_record import Job
    from beanstalkd_py.admin.statistics import Look, TubeStats

_TUBE_COLUMNS = (
    *("ready", "reserved", "delayed", "buried", "urgent"),
    *("using", "watching", "waiting", "total", "paused_s"),
)
_WATCH = click.option(
    "--watch", metavar="SECONDS", type=Seconds(), help="Again every so many seconds, until Ctrl-C."
)


@click.command(context_settings=CONTEXT)
@_WATCH
@click.option("--tube", type=TubeType(), help="The statistics of this tube.")
@click.option(
    "--job",
    metavar="ID",
    type=Number("a job id", minimum=1, maximum=2**64 - 1),
    help="The statistics of this job.",
)
@on_server(json="One JSON object with the server's keys; with --watch one line each time.")
def stats(
    server: Server, as_json: bool, watch: float | None, tube: str | None, job: int | None
) -> None:
    """Show the statistics of the server, a tube or a job.

    The names are those of the protocol; times are in seconds, sizes in bytes. With --watch, changes
    per second stand beside the numbers, and on a terminal zeros are left out.

    \b
    Examples:
      beanstalkd-py stats
      beanstalkd-py stats --watch 1
      beanstalkd-py stats --tube mails
      beanstalkd-py stats --job 17 --json | jq .reserves
    """
    if tube is not None and job is not None:
        raise click.UsageError("Give --tube or --job, not both")
    with server.connect() as connection:
        before: dict[str, Any] = {}
        before_s = 0.0
        while True:
            found = _ask(connection, tube, job)
            now_s = time.monotonic()
            if as_json:
                write_json(found)
            elif watch is None:
                write_table(_keys_and_values(found))
            else:
                title = f"{server.address}  {time.strftime('%H:%M:%S')}  every {watch:g} s"
                changes = _with_rates(found, before, now_s - before_s)
                write_screen(changes, title, first=not before)
            if watch is None:
                return
            before, before_s = found, now_s
            time.sleep(watch)


def _ask(connection: Connection, tube: str | None, job: int | None) -> dict[str, Any]:
    """The server's keys with their values as numbers where they are some."""
    from beanstalkd_py.admin.connection import NOT_FOUND, refused
    from beanstalkd_py.admin.statistics import no_tube, parse

    command, texts = b"stats", TEXTS
    if tube is not None:
        command = b"stats-tube " + tube.encode()
    elif job is not None:
        command, texts = b"stats-job %d" % job, _TEXTS_OF_A_JOB
    reply = connection.ask_one(command)
    if reply is NOT_FOUND:
        raise no_tube(tube) if tube is not None else refused("NOT_FOUND", f"job {job}")
    found = parse(reply.expect(b"OK").body)
    return as_values(found, texts)


def as_values(found: dict[str, str], texts: Container[str]) -> dict[str, Any]:
    """The server's values as numbers and truths where they are some, but for those of `texts`."""
    return {key: value if key in texts else _value(value) for key, value in found.items()}


TEXTS = frozenset(("id", "version", "hostname", "os", "platform", "name"))
"""Texts in the statistics of a server or a tube."""
_TEXTS_OF_A_JOB = frozenset(("tube", "state"))


def _value(text: str) -> int | float | bool | str:
    if text.isascii() and text.isdigit():
        return int(text)
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text)
    except ValueError:
        return text


def _keys_and_values(found: dict[str, Any]) -> Table:
    return Table(("key", "value"), [(key, _shown(value)) for key, value in found.items()])


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _with_rates(found: dict[str, Any], before: dict[str, Any], passed_s: float) -> list[Table]:
    """Two tables that fit side by side: what is, and what is counted."""
    tables = [Table(("key", "value", "per second"), []) for _ in range(2)]
    for key, value in found.items():
        old = before.get(key, value)
        changed = type(value) is int and value != old and key not in _CLOCKS
        # A terminal has not many lines: what says nothing is left out.
        if sys.stdout.isatty() and (value == 0 or key in TEXTS) and not changed:
            continue
        table = tables[key.startswith("cmd-")]
        if changed:
            table.marked.add((len(table.rows), 2))
        rate = f"{(value - old) / passed_s:+.1f}" if changed else ""
        number = type(value) in (int, float)
        table.rows.append((key, value if number else _shown(value), rate))
    return [table for table in tables if table.rows]


_CLOCKS = ("uptime", "age", "time-left", "pause-time-left")


@click.command(context_settings=CONTEXT)
@_WATCH
@on_server(json="One JSON array with an object for each tube; with --watch one line each time.")
def tubes(server: Server, as_json: bool, watch: float | None) -> None:
    """Show all tubes in a table.

    \b
    ready, reserved, delayed, buried   jobs in that state
    urgent     ready jobs with a priority below 1024
    using, watching, waiting           connections that do
    total      jobs put since the tube was made or the server was started
    paused_s   seconds until its pause ends

    With --json the keys are these and tube. This command's own connection uses and watches default.

    \b
    Examples:
      beanstalkd-py tubes
      beanstalkd-py tubes --watch 2
      beanstalkd-py tubes --json | jq '.[] | select(.buried > 0) | .tube'
    """
    from beanstalkd_py.admin.statistics import Looker

    with server.connect() as connection:
        looker = Looker(connection)
        before: Look | None = None
        while True:
            look = looker.look()
            if as_json:
                write_json([{"tube": row.tube, **_numbers(row)} for row in look.tubes])
            elif watch is None:
                write_table(_tube_table(look, None))
            else:
                title = f"{server.address}  {time.strftime('%H:%M:%S')}  every {watch:g} s"
                write_screen([_tube_table(look, before)], title, first=before is None)
            if watch is None:
                return
            before = look
            time.sleep(watch)


def _numbers(row: TubeStats) -> dict[str, int]:
    return {column: getattr(row, column) for column in _TUBE_COLUMNS}


def _tube_table(look: Look, before: Look | None) -> Table:
    """With the numbers marked that have changed since the look before."""
    old = {row.tube: _numbers(row) for row in before.tubes} if before else {}
    marked = {
        (number, place)
        for number, row in enumerate(look.tubes)
        for place, (column, value) in enumerate(_numbers(row).items(), 1)
        if before and old.get(row.tube, {}).get(column) != value
    }
    rows: list[Row] = [(row.tube, *_numbers(row).values()) for row in look.tubes]
    return Table(("tube", *_TUBE_COLUMNS), rows, marked)


@click.command(context_settings=CONTEXT)
@on_server(json="One JSON object: tube, paused_s.")
@click.argument("tube", type=TubeType())
@click.argument("seconds", type=Number("a number of seconds", maximum=UINT32_MAX))
def pause(server: Server, as_json: bool, tube: str, seconds: int) -> None:
    """Let nobody reserve from TUBE for a while.

    That is so many SECONDS; 0 ends a pause. Putting goes on. A pause does not outlive a restart of
    the server.

    \b
    Examples:
      beanstalkd-py pause mails 3600
      beanstalkd-py pause mails 0
    """
    import greenstalk

    from beanstalkd_py.admin.statistics import no_tube

    with server.connect() as connection:
        try:
            connection.client.pause_tube(tube, seconds)
        except greenstalk.NotFoundError:
            raise no_tube(tube) from None
    if as_json:
        write_json({"tube": tube, "paused_s": seconds})
    elif seconds:
        write_line(f"tube {tube} is paused for {seconds} s")
    else:
        write_line(f"tube {tube} is not paused")


@click.command(context_settings=CONTEXT)
@click.option(
    "--interval",
    metavar="SECONDS",
    type=Seconds(),
    default=1.0,
    show_default=True,
    help="Time between two looks.",
)
@click.option(
    "--limit", metavar="N", type=Number("a number of jobs", minimum=1), help="End after N jobs."
)
@on_server(json=f"{JOB_JSON} A line for each job.")
@click.argument("tube", type=TubeType())
def tail(server: Server, as_json: bool, interval: float, limit: int | None, tube: str) -> None:
    """Show the jobs that come into TUBE.

    None is taken. Ctrl-C ends it. The protocol can look only at jobs that are there. A job that is
    reserved when it is seen is shown as reserved; one that comes and is deleted between two looks
    is not shown, and how many those were is said on stderr. A shorter --interval sees more. Each
    look asks for some thousand ids; counters of jobs do not move, and of the server's only cmd-peek
    and cmd-stats.

    \b
    Examples:
      beanstalkd-py tail mails
      beanstalkd-py tail mails --interval 0.1 --json | jq -r .body
    """
    from beanstalkd_py.admin.follow import Follower

    with server.connect() as connection:
        follower = Follower(connection, tube)
        missed = 0
        say(f"following tube {tube} on {server.address}; Ctrl-C ends")
        while True:
            time.sleep(interval)
            for job in follower.new_jobs():
                if as_json:
                    write_json(job.to_json())
                else:
                    write_line(_one_line(job))
                limit = None if limit is None else limit - 1
                if limit == 0:
                    return
            if follower.missed > missed:
                say(f"{counted(follower.missed - missed)} had gone before being seen")
                missed = follower.missed


def _one_line(job: Job) -> str:
    body = readable(job.body).replace("\n", "\\n").replace("\t", "\\t")
    return (
        f"{job.id}  {job.state}  pri={job.pri}  delay={job.delay_s}  ttr={job.ttr_s}"
        f"  bytes={len(job.body)}  {body}"
    )
