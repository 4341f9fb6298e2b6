"""Commands that show the server, its tubes and new jobs, and pause tubes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Container, Iterator
from typing import TYPE_CHECKING, TypeVar

import click

from beanstalkd_py.cli import output
from beanstalkd_py.cli.argument_types import Number, Seconds
from beanstalkd_py.cli.connection_options import CONTEXT, Server, TubeType, server_options
from beanstalkd_py.cli.jobs.job_commands import JOB_ID, JOB_JSON
from beanstalkd_py.cli.options import count_option, option
from beanstalkd_py.plural import counted
from beanstalkd_py.quantities import UINT32_MAX

if TYPE_CHECKING:
    from beanstalkd_py.admin.connection import Connection
    from beanstalkd_py.admin.job_record import Job
    from beanstalkd_py.admin.statistics import TubeStats

Value = int | float | bool | str
T = TypeVar("T")

_TUBE_COLUMNS = (
    *("ready", "reserved", "delayed", "buried", "urgent"),
    *("using", "watching", "waiting", "total", "paused_s"),
)
_WATCH = option("--watch", "Repeat at this interval until Ctrl-C.", Seconds())


@click.command(context_settings=CONTEXT)
@_WATCH
@option("--tube", "Show the statistics of this tube.", TubeType())
@option("--job", "Show the statistics of this job.", JOB_ID, metavar="ID")
@server_options(json="Print a JSON object with the server's keys; with --watch one per line.")
def stats(
    server: Server, as_json: bool, watch: float | None, tube: str | None, job: int | None
) -> None:
    """Show the statistics of the server, a tube or a job.

    Names are those of the protocol; times are in seconds, sizes in bytes. --watch adds changes per
    second, and on a terminal omits zeros.

    \b
    Examples:
      beanstalkd-py stats
      beanstalkd-py stats --watch 1
      beanstalkd-py stats --tube mails
      beanstalkd-py stats --job 17 --json | jq .reserves
    """
    if tube is not None and job is not None:
        raise click.UsageError("--tube and --job exclude each other")
    with server.connect() as connection:
        for values, before, passed_s in _polls(lambda: _query(connection, tube, job), watch):
            if as_json:
                output.write_json(values)
            else:
                _show(server, watch, _with_rates(values, before, passed_s), before is None)


def _polls(
    query: Callable[[], T], watch: float | None
) -> Iterator[tuple[T, T | None, float | None]]:
    """Yield the result of a query, the one before, and the seconds between them.

    Without --watch there is one poll, and no seconds.
    """
    before: T | None = None
    before_s = 0.0
    while watch is not None:
        result, now_s = query(), time.monotonic()
        yield result, before, now_s - before_s
        before, before_s = result, now_s
        time.sleep(watch)
    yield query(), None, None


def _show(server: Server, watch: float | None, tables: list[output.Table], first: bool) -> None:
    if watch is None:
        output.write_table(tables[0])
    else:
        title = f"{server.address}  {time.strftime('%H:%M:%S')}  every {watch:g} s"
        output.write_screen(tables, title, first)


def _query(connection: Connection, tube: str | None, job: int | None) -> dict[str, Value]:
    from beanstalkd_py.admin.connection import NOT_FOUND, refusal_error
    from beanstalkd_py.admin.statistics import no_tube, parse, stats_tube_command

    command, texts = b"stats", TEXTS
    if tube is not None:
        command = stats_tube_command(tube)
    elif job is not None:
        command, texts = b"stats-job %d" % job, _TEXTS_OF_A_JOB
    reply = connection.execute(command)
    if reply is NOT_FOUND:
        raise no_tube(tube) if tube is not None else refusal_error("NOT_FOUND", f"job {job}")
    return typed_values(parse(reply.expect(b"OK").body), texts)


def typed_values(values: dict[str, str], texts: Container[str]) -> dict[str, Value]:
    """Convert numbers and booleans; the values of the keys `texts` stay strings."""
    return {key: value if key in texts else _value(value) for key, value in values.items()}


TEXTS = frozenset(("id", "version", "hostname", "os", "platform", "name"))
"""Keys of strings in the statistics of a server or a tube."""
_TEXTS_OF_A_JOB = frozenset(("tube", "state"))


def _value(text: str) -> Value:
    if text.isascii() and text.isdigit():
        return int(text)
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text)
    except ValueError:
        return text


def _shown(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _with_rates(
    values: dict[str, Value], before: dict[str, Value] | None, passed_s: float | None
) -> list[output.Table]:
    """Return one table, with --watch two that fit side by side: state, and command counters."""
    if passed_s is None:
        return [
            output.Table(("key", "value"), [(key, _shown(value)) for key, value in values.items()])
        ]
    before = before or {}
    tables = [output.Table(("key", "value", "per second"), []) for _ in range(2)]
    for key, value in values.items():
        old = before.get(key, value)
        is_counter = type(value) is int and type(old) is int and key not in _CLOCKS
        change = int(value) - int(old) if is_counter else 0
        # Omit zeros and strings, because a terminal has few lines.
        if sys.stdout.isatty() and (value == 0 or key in TEXTS) and not change:
            continue
        table = tables[key.startswith("cmd-")]
        if change:
            table.marked.add((len(table.rows), 2))
        rate = f"{change / passed_s:+.1f}" if change else ""
        is_number = type(value) in (int, float)
        table.rows.append((key, value if is_number else _shown(value), rate))
    return [table for table in tables if table.rows]


_CLOCKS = ("uptime", "age", "time-left", "pause-time-left")


@click.command(context_settings=CONTEXT)
@_WATCH
@server_options(json="Print a JSON array with an object for each tube; with --watch one per line.")
def tubes(server: Server, as_json: bool, watch: float | None) -> None:
    """Show all tubes.

    \b
    ready, reserved, delayed, buried   jobs in that state
    urgent     ready jobs with a priority below 1024
    using, watching, waiting           connections
    total      jobs put since the tube was created or the server started
    paused_s   remaining seconds of a pause

    --json has these keys and tube. This command's own connection uses and watches default.

    \b
    Examples:
      beanstalkd-py tubes
      beanstalkd-py tubes --watch 2
      beanstalkd-py tubes --json | jq '.[] | select(.buried > 0) | .tube'
    """
    from beanstalkd_py.admin.statistics import StatsReader

    with server.connect() as connection:
        for rows, before, _ in _polls(StatsReader(connection).tubes, watch):
            if as_json:
                output.write_json([{"tube": row.tube, **_numbers(row)} for row in rows])
            else:
                _show(server, watch, [_tube_table(rows, before)], before is None)


def _numbers(row: TubeStats) -> dict[str, int]:
    return {column: getattr(row, column) for column in _TUBE_COLUMNS}


def _tube_table(tubes: list[TubeStats], before: list[TubeStats] | None) -> output.Table:
    """Mark the numbers that have changed since `before`."""
    old = {row.tube: _numbers(row) for row in before or ()}
    marked = {
        (number, at)
        for number, row in enumerate(tubes)
        for at, (column, value) in enumerate(_numbers(row).items(), 1)
        if before is not None and old.get(row.tube, {}).get(column) != value
    }
    rows: list[output.Row] = [(row.tube, *_numbers(row).values()) for row in tubes]
    return output.Table(("tube", *_TUBE_COLUMNS), rows, marked)


@click.command(context_settings=CONTEXT)
@server_options(json="Print a JSON object: tube, paused_s.")
@click.argument("tube", type=TubeType())
@click.argument("seconds", type=Number("a number of seconds", maximum=UINT32_MAX))
def pause(server: Server, as_json: bool, tube: str, seconds: int) -> None:
    """Pause reserves from TUBE for SECONDS; 0 ends a pause.

    Puts continue. A restart of the server ends the pause.

    \b
    Examples:
      beanstalkd-py pause mails 3600
      beanstalkd-py pause mails 0
    """
    from beanstalkd_py.admin.connection import NOT_FOUND
    from beanstalkd_py.admin.statistics import no_tube

    with server.connect() as connection:
        reply = connection.execute(b"pause-tube %b %d" % (tube.encode(), seconds))
    if reply is NOT_FOUND:
        raise no_tube(tube)
    reply.expect(b"PAUSED")
    text = f"tube {tube} is paused for {seconds} s" if seconds else f"tube {tube} is not paused"
    output.write_result(as_json, {"tube": tube, "paused_s": seconds}, text)


@click.command(context_settings=CONTEXT)
@option("--interval", "Time between two polls.", Seconds(), default=1.0)
@count_option("--limit", "Exit after N jobs.", "jobs", minimum=1)
@server_options(json=f"{JOB_JSON} One line per job.")
@click.argument("tube", type=TubeType())
def tail(server: Server, as_json: bool, interval: float, limit: int | None, tube: str) -> None:
    """Show new jobs of TUBE without reserving them, until Ctrl-C.

    The protocol can show only jobs that exist. A job that was put and deleted between two polls is
    not shown; stderr has the number of such jobs. A shorter --interval shows more of them. Each
    poll queries some thousand ids. It changes no counters but cmd-peek and cmd-stats.

    \b
    Examples:
      beanstalkd-py tail mails
      beanstalkd-py tail mails --interval 0.1 --json | jq -r .body
    """
    from beanstalkd_py.admin.follow import Follower

    with server.connect() as connection:
        follower = Follower(connection, tube)
        missed = 0
        output.notice(f"following tube {tube} on {server.address}; press Ctrl-C to stop")
        while True:
            time.sleep(interval)
            for job in follower.new_jobs():
                output.write_result(as_json, job.to_json(), _one_line(job))
                limit = None if limit is None else limit - 1
                if limit == 0:
                    return
            if follower.missed > missed:
                output.notice(f"{counted(follower.missed - missed)} deleted before being shown")
                missed = follower.missed


def _one_line(job: Job) -> str:
    return (
        f"{job.id}  {job.state}  pri={job.pri}  delay={job.delay_s}  ttr={job.ttr_s}"
        f"  bytes={len(job.body)}  {output.readable_line(job.body)}"
    )
