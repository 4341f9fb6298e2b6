"""Commands for all jobs of a tube: move, truncate, export, import."""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.argument_types import Rate
from beanstalkd_py.cli.connection_options import CONTEXT, Server, TubeType, server_options
from beanstalkd_py.cli.interrupts import DeferredInterrupts
from beanstalkd_py.cli.options import count_option, option
from beanstalkd_py.cli.output import notice, write_json, write_line, write_result
from beanstalkd_py.plural import counted

if TYPE_CHECKING:
    from beanstalkd_py.admin.connection import Connection
    from beanstalkd_py.admin.id_scan import Progress, Scan
    from beanstalkd_py.admin.import_jobs import ImportResult
    from beanstalkd_py.admin.move import MoveResult
    from beanstalkd_py.admin.statistics import TubeStats

STATES = ("ready", "delayed", "buried")
_STATE = option(
    "--state states",
    "Only jobs in this state; may be repeated.  [default: all three]",
    click.Choice(STATES),
    multiple=True,
    default=STATES,
    show_default=False,
)


@click.command(context_settings=CONTEXT)
@_STATE
@count_option("--limit", "Move at most N jobs.", "jobs", minimum=1)
@option("--rate", "Jobs per second, spread evenly.  [default: unlimited]", Rate())
@server_options(
    json="Print a JSON object: from, to, moved, taken_by_others, finished_of_killed_move,"
    " withdrawn_of_killed_move, target_read_completely."
)
@click.argument("source", metavar="FROM", type=TubeType())
@click.argument("target", metavar="TO", type=TubeType())
def move(
    server: Server,
    as_json: bool,
    states: tuple[str, ...],
    limit: int | None,
    rate: float | None,
    source: str,
    target: str,
) -> None:
    """Move the jobs of one tube to another.

    Jobs keep their priorities, delays, TTRs, bodies and order, and get new ids. Reserved jobs stay
    in FROM. Ctrl-C stops the move between two batches.

    A killed move loses no job, and no job runs twice. Up to 64 jobs may wait in TO, delayed for
    decades so that no client reserves them. The next move into TO, from any tube, recovers them
    first: run the same command again. (That move would also take jobs in TO that were delayed for
    68 to 119 years by another client.) Only buried jobs wait there if the server itself moves jobs:
    if its `features` include move, and the name of TO has at most 170 characters.

    Policies of TO neither reject nor merge jobs that the server moves. Other moves put copies, so
    give TO no policy with unique, max-delay or max-reserves then.

    Two limitations, of moves that the server does not execute: a job that a client finished between
    the kill and the next move runs again; `pause FROM 86400` before the move prevents this. A
    delayed or buried job that a kill catches in the last step may be ready afterwards.

    \b
    Examples:
      beanstalkd-py move mails mails.old
      beanstalkd-py move mails retry --state buried --limit 100
      beanstalkd-py move mails.dead mails --rate 50

    Exit status 1 if the server refused a job, which then stays in FROM.
    """
    from beanstalkd_py.admin.move import MoveResult
    from beanstalkd_py.admin.move import move as move_jobs

    if source == target:
        raise click.UsageError("FROM and TO are the same tube")
    result = MoveResult()
    ordered = [state for state in STATES if state in states]
    interrupts = DeferredInterrupts()
    try:
        with interrupts.installed(), server.connect() as connection:
            move_jobs(
                connection,
                source,
                target,
                ordered,
                limit,
                rate,
                result=result,
                deferred=interrupts.deferred,
            )
    except errors.NoConnectionError as error:
        rest = f"; moved {counted(result.moved)}, run the same command again to continue"
        error.args = (f"{error}{rest if result.started else ''}",)
        raise
    except KeyboardInterrupt:
        _report(result, source, target, as_json)
        if result.moved == limit and not interrupts.forced:
            return
        raise errors.InterruptError(_interrupted_move(result, limit, interrupts.forced)) from None
    _report(result, source, target, as_json)


def _interrupted_move(result: MoveResult, limit: int | None, forced: bool) -> str:
    text = f"interrupted; moved {counted(result.moved)}"
    if forced:
        return f"{text}, the next batch may be incomplete; run the same command again"
    if limit is not None:
        rest = limit - result.moved
        return f"{text}; run the same command with --limit {rest} to move the others"
    return f"{text}; run the same command again to move the others"


def _report(result: MoveResult, source: str, target: str, as_json: bool) -> None:
    if as_json:
        write_json({"from": source, "to": target, **result.to_json()})
        return
    if result.recovered or result.withdrawn:
        write_line(
            f"recovered a killed move into {target}: moved {result.recovered},"
            f" withdrew {result.withdrawn}"
        )
    if result.scan_incomplete:
        notice(f"tube {target} changes too fast to find all copies of a killed move")
    write_line(f"moved {counted(result.moved)} from {source} to {target}")
    if result.taken:
        notice(f"reserved or deleted by other clients meanwhile: {result.taken}")


@click.command(context_settings=CONTEXT)
@_STATE
@option("--yes", "Do not ask for confirmation.", is_flag=True)
@option("--dry-run", "Only print what would be deleted.", is_flag=True)
@server_options(
    json="Print a JSON object: tube, deleted, left_reserved, dry_run. Requires --yes or --dry-run."
)
@click.argument("tube", type=TubeType())
def truncate(
    server: Server, as_json: bool, states: tuple[str, ...], yes: bool, dry_run: bool, tube: str
) -> None:
    """Delete all jobs of TUBE that are not reserved.

    Asks for confirmation. Jobs that arrive meanwhile are deleted, too. Reserved jobs belong to
    their clients; the command prints how many are left.

    \b
    Examples:
      beanstalkd-py truncate mails --dry-run
      beanstalkd-py truncate mails --yes
      beanstalkd-py truncate mails --state buried

    Exit status 1 without confirmation, 2 if stdin is not a terminal and --yes is missing.
    """
    from beanstalkd_py.admin.statistics import tube_stats

    with server.connect() as connection:
        stats = tube_stats(connection, tube)
        if not dry_run and not yes:
            _confirm(stats, states, server, as_json)
        deleted = stats.count(states)
        if not dry_run:
            deleted = _delete_all(server, connection, tube, states)
        reserved = stats.reserved if dry_run else _reserved_now(connection, tube)
    if as_json:
        report = {"deleted": deleted, "left_reserved": reserved, "dry_run": dry_run}
        write_json({"tube": tube, **report})
        return
    write_line(f"{'would delete' if dry_run else 'deleted'} {counted(deleted)} of tube {tube}")
    if reserved:
        notice(f"{counted(reserved, 'reserved job')} cannot be deleted: clients have them")


def _confirm(stats: TubeStats, states: tuple[str, ...], server: Server, as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        raise errors.ToolUsageError("cannot ask for confirmation; use --yes or --dry-run")
    counts = ", ".join(f"{stats.count([state])} {state}" for state in STATES if state in states)
    question = f"Delete {counted(stats.count(states))} ({counts}) of tube {stats.tube}"
    if not click.confirm(f"{question} on {server.address}?", err=True):
        raise errors.IncompleteError("nothing was deleted")


def _delete_all(server: Server, connection: Connection, tube: str, states: tuple[str, ...]) -> int:
    from beanstalkd_py.admin.local_control import connect_control
    from beanstalkd_py.admin.truncate import TruncateResult, truncate, truncate_on_server

    interrupts = DeferredInterrupts()
    result = TruncateResult()
    control = connect_control(connection, server.address, server.timeout_s)
    try:
        with interrupts.installed():
            if control is None:
                truncate(connection, tube, states, result, interrupts.deferred)
            else:
                with control, interrupts.deferred():
                    truncate_on_server(control, tube, states, result, lambda: interrupts.pending)
    except errors.NoConnectionError as error:
        error.args = (f"{error}; deleted {counted(result.deleted)} before that",)
        raise
    except KeyboardInterrupt:
        if not result.complete or interrupts.forced:
            text = f"interrupted; deleted {counted(result.deleted)} of tube {tube}"
            if interrupts.forced:
                text += ", the next batch may be deleted or not"
            text += "; run the same command again to delete the others"
            raise errors.InterruptError(text) from None
    return result.deleted


def _reserved_now(connection: Connection, tube: str) -> int:
    from beanstalkd_py.admin.connection import NOT_FOUND
    from beanstalkd_py.admin.statistics import TubeStats, stats_tube_command

    reply = connection.execute(stats_tube_command(tube))
    return 0 if reply is NOT_FOUND else TubeStats.read(reply).reserved


@click.command("export", context_settings=CONTEXT)
@count_option(
    "--reach",
    "Stop searching in a direction after this many ids without a job.",
    "ids",
    minimum=1,
    metavar="IDS",
    default=1_000_000,
)
@server_options()
@click.argument("tube", type=TubeType())
def export(server: Server, reach: int, tube: str) -> None:
    """Write the jobs of TUBE as JSON lines.

    Writes ready, delayed and buried jobs without consuming them. Reserved jobs are left out and
    counted on stderr.

    The protocol cannot list jobs. The command therefore queries ids, from the first jobs of the
    tube outwards, until it has found as many jobs as the tube has. 100,000 jobs take about five
    seconds, 100,000 ids without a job up to two. Counters of jobs do not change. Each job is
    written as it was when it was read.

    \b
    Each line is an object; lines are in the order of ids:
      id, tube     ignored by `import`
      state        "ready", "delayed" or "buried"
      pri          priority
      delay        remaining seconds of a delayed job, otherwise 0
      ttr          seconds
      body         the body, if it is UTF-8; otherwise
      body_base64  the body's bytes in base64

    The protocol does not report the order in which jobs were buried.

    \b
    Examples:
      beanstalkd-py export mails > mails.jsonl
      beanstalkd-py export mails | beanstalkd-py import --addr other:11300 mails
      beanstalkd-py export mails | jq -r 'select(.state == "buried") | .body'

    Exit status 1 if jobs may be missing: the tube changes fast, or there are more ids than --reach
    between its jobs.
    """
    from beanstalkd_py.admin.id_scan import read_jobs, scan

    with server.connect() as connection:
        result = scan(connection, tube, reach, _progress())
        for job in read_jobs(connection, result):
            write_json(job.to_json())
    _report_missing(result, tube, reach)


def _report_missing(scan: Scan, tube: str, reach: int) -> None:
    if not scan.complete:
        raise errors.IncompleteError(
            f"found {len(scan.jobs)} of {counted(scan.expected)} of tube {tube};"
            f" stop fast clients, or raise --reach {reach}"
        )
    if reserved := sum(job.state == "reserved" for job in scan.jobs.values()):
        notice(f"left out {counted(reserved, 'reserved job')}: clients have them")


def _progress() -> Progress | None:
    if not sys.stderr.isatty():
        return None

    def show(queried: int, found: int, expected: int) -> None:
        if queried % (1 << 18) == 0:
            notice(f"queried {queried} ids, found {found} of {counted(expected)}")

    return show


@click.command("import", context_settings=CONTEXT)
@count_option(
    "--skip", "Skip this many lines.", "lines", metavar="LINES", default=0, show_default=True
)
@server_options(json="Print a JSON object: tube, put, line (number of the last line processed).")
@click.argument("tube", type=TubeType())
@click.argument("file", type=click.File("rb"), default="-")
def import_(server: Server, as_json: bool, skip: int, tube: str, file: IO[bytes]) -> None:
    """Put the jobs of FILE into TUBE.

    FILE has JSON lines as `export` writes them; the default is stdin. Only body or body_base64 is
    required. The defaults are ready, priority 65536, delay 0 and a TTR of 60 s. Jobs are put in the
    order of lines and get new ids.

    An invalid line or a refused job ends the import before any later line; --skip continues from
    there. After a kill, jobs of the last lines may exist in the tube; a job that was to be buried
    may then be delayed for a century.

    \b
    Examples:
      beanstalkd-py import mails mails.jsonl
      echo '{"body": "to=ann", "pri": 0}' | beanstalkd-py import mails
      beanstalkd-py import --skip 1200 mails mails.jsonl
    """
    from beanstalkd_py.admin.import_jobs import ImportResult, import_lines

    result = ImportResult()
    interrupts = DeferredInterrupts()
    try:
        with interrupts.installed(), server.connect() as connection:
            import_lines(connection, tube, file, skip, result, interrupts.deferred)
    except (errors.ToolUsageError, errors.RefusedError) as error:
        error.args = (f"{error}; put {counted(result.put)}, continue with --skip {result.line}",)
        raise
    except errors.NoConnectionError as error:
        error.args = (f"{error}; {_uncertain(result)}",)
        raise
    except KeyboardInterrupt:
        line = max(skip, result.line)
        rest = f"put {counted(result.put)}, continue with --skip {line}"
        if interrupts.forced:
            rest = _uncertain(result)
        raise errors.InterruptError(f"interrupted; {rest}") from None
    write_result(
        as_json,
        {"tube": tube, "put": result.put, "line": result.line},
        f"put {counted(result.put)} into {tube}",
    )


def _uncertain(result: ImportResult) -> str:
    return f"processed {counted(result.line, 'line')}; jobs of the next lines may have been put"
