"""Commands for all jobs of a tube: move, truncate, export, import."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import IO, TYPE_CHECKING

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.connection_options import CONTEXT, Server, TubeType, on_server
from beanstalkd_py.cli.interrupts import HeldInterrupts
from beanstalkd_py.cli.number_arguments import Number
from beanstalkd_py.cli.output import counted, say, write_json, write_line

if TYPE_CHECKING:
    from beanstalkd_py.admin.connection import Connection
    from beanstalkd_py.admin.id_scan import Progress, Scan
    from beanstalkd_py.admin.move import Moved
    from beanstalkd_py.admin.statistics import TubeStats

STATES = ("ready", "delayed", "buried")
_STATE = click.option(
    "--state",
    "states",
    type=click.Choice(STATES),
    multiple=True,
    default=STATES,
    help="Only jobs in this state; may be given several times. Without it: all three.",
)


@click.command(context_settings=CONTEXT)
@_STATE
@click.option(
    "--limit", metavar="N", type=Number("a number of jobs", minimum=1), help="At most so many."
)
@on_server(
    json="One JSON object: from, to, moved, taken_by_others, finished_of_killed_move,"
    " withdrawn_of_killed_move, target_read_completely."
)
@click.argument("source", metavar="FROM", type=TubeType())
@click.argument("target", metavar="TO", type=TubeType())
def move(
    server: Server,
    as_json: bool,
    states: tuple[str, ...],
    limit: int | None,
    source: str,
    target: str,
) -> None:
    """Move the jobs of one tube to another.

    They keep priorities, delays, TTRs and bodies, and get new ids, in their old order. Reserved
    jobs stay. Ctrl-C ends it between two batches.

    If it is killed, no job is lost and none can run twice. Up to 64 may wait in TO, delayed for
    decades so that nobody gets them; the next move into TO, from anywhere, finishes them first: run
    the same command again. (Jobs in TO that you have delayed for 68 to 119 years would be taken for
    such.) One thing it cannot know: a job that a worker took from FROM and finished between the
    kill and that move runs again. `pause FROM 86400` before the move excludes it. A delayed or
    buried job caught by a kill in its last step may be ready afterwards.

    \b
    Examples:
      beanstalkd-py move mails mails.old
      beanstalkd-py move mails retry --state buried --limit 100

    Exit status 1 if the server refused a job, which is then still in FROM.
    """
    from beanstalkd_py.admin.move import Moved
    from beanstalkd_py.admin.move import move as move_jobs

    if source == target:
        raise click.UsageError("FROM and TO are the same tube")
    moved = Moved()
    wanted = [state for state in STATES if state in states]
    interrupts = HeldInterrupts()
    try:
        with interrupts.installed(), server.connect() as connection:
            move_jobs(connection, source, target, wanted, limit, moved=moved, held=interrupts.held)
    except errors.NoConnectionError as error:
        rest = f"; moved {counted(moved.moved)}, the same command again finishes what was begun"
        error.args = (f"{error}{rest if moved.begun else ''}",)
        raise
    except KeyboardInterrupt:
        _tell_moved(moved, source, target, as_json)
        if moved.moved == limit and not interrupts.forced:
            return
        raise errors.InterruptError(_interrupted_move(moved, limit, interrupts.forced)) from None
    _tell_moved(moved, source, target, as_json)


def _interrupted_move(moved: Moved, limit: int | None, inside: bool) -> str:
    text = f"interrupted; moved {counted(moved.moved)}"
    if inside:
        return f"{text}, the next few may be on their way; the same command again finishes these"
    if limit is not None:
        return f"{text}; the same command with --limit {limit - moved.moved} moves the others"
    return f"{text}; the same command again moves the others"


def _tell_moved(moved: Moved, source: str, target: str, as_json: bool) -> None:
    if as_json:
        write_json({"from": source, "to": target, **moved.to_json()})
    else:
        _report(moved, source, target)


def _report(moved: Moved, source: str, target: str) -> None:
    if moved.finished or moved.withdrawn:
        write_line(
            f"of a move that was killed: in {target} now: {moved.finished},"
            f" taken back: {moved.withdrawn}"
        )
    if moved.unsure:
        say(f"tube {target} changes too fast to tell whether a killed move has left copies there")
    write_line(f"moved {counted(moved.moved)} from {source} to {target}")
    if moved.taken:
        say(f"taken by others meanwhile: {moved.taken}")


@click.command(context_settings=CONTEXT)
@_STATE
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@on_server(json="One JSON object: tube, deleted, left_reserved, dry_run. Wants --yes or --dry-run.")
@click.argument("tube", type=TubeType())
def truncate(
    server: Server, as_json: bool, states: tuple[str, ...], yes: bool, dry_run: bool, tube: str
) -> None:
    """Delete all jobs of TUBE that are not reserved.

    It asks first. Jobs that come meanwhile go, too. Reserved jobs belong to the clients that have
    them; how many are left is said at the end.

    \b
    Examples:
      beanstalkd-py truncate mails --dry-run
      beanstalkd-py truncate mails --yes
      beanstalkd-py truncate mails --state buried

    Exit status 1 if the answer is no, 2 if there is nobody to ask.
    """
    from beanstalkd_py.admin.statistics import tube_stats

    with server.connect() as connection:
        stats = tube_stats(connection, tube)
        if not dry_run and not yes:
            # Nobody knows how long an answer takes; the server keeps the connection.
            _ask(stats, states, server, as_json)
        deleted = stats.count(states)
        if not dry_run:
            deleted = _delete_all(server, connection, tube, states)
        reserved = stats.reserved if dry_run else _reserved_now(connection.ask_one, tube)
    if as_json:
        report = {"deleted": deleted, "left_reserved": reserved, "dry_run": dry_run}
        write_json({"tube": tube, **report})
        return
    write_line(f"{'would delete' if dry_run else 'deleted'} {counted(deleted)} of tube {tube}")
    if reserved:
        say(f"{counted(reserved, 'reserved job')} cannot be deleted: clients have them")


def _delete_all(server: Server, connection: Connection, tube: str, states: tuple[str, ...]) -> int:
    from beanstalkd_py.admin.local_control import control_of
    from beanstalkd_py.admin.truncate import Truncated, truncate, truncate_at_once

    interrupts = HeldInterrupts()
    truncated = Truncated()
    control = control_of(connection, server.address, server.timeout_s)
    try:
        with interrupts.installed():
            if control is None:
                truncate(connection, tube, states, truncated, interrupts.held)
            else:
                with control, interrupts.held():
                    truncate_at_once(control, tube, states, truncated, lambda: interrupts.noted)
    except errors.NoConnectionError as error:
        error.args = (f"{error}; deleted {counted(truncated.deleted)} before that",)
        raise
    except KeyboardInterrupt:
        if not truncated.complete or interrupts.forced:
            raise errors.InterruptError(
                _interrupted_truncation(truncated.deleted, tube, interrupts.forced)
            ) from None
    return truncated.deleted


def _interrupted_truncation(deleted: int, tube: str, inside: bool) -> str:
    text = f"interrupted; deleted {counted(deleted)} of tube {tube}"
    if inside:
        text += ", the next ones may be deleted or not"
    return f"{text}; the same command again deletes the others"


def _reserved_now(ask_one: Callable[[bytes], object], tube: str) -> int:
    from beanstalkd_py.admin.connection import NOT_FOUND, Reply
    from beanstalkd_py.admin.statistics import TubeStats

    reply = ask_one(b"stats-tube " + tube.encode())
    if not isinstance(reply, Reply) or reply is NOT_FOUND:
        return 0
    return TubeStats.read(reply).reserved


def _ask(stats: TubeStats, states: tuple[str, ...], server: Server, as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        raise errors.ToolUsageError("nobody can be asked; give --yes, or --dry-run to look first")
    counts = ", ".join(f"{stats.count([state])} {state}" for state in STATES if state in states)
    question = f"Delete {counted(stats.count(states))} ({counts}) of tube {stats.tube}"
    if not click.confirm(f"{question} on {server.address}?", err=True):
        raise errors.IncompleteError("nothing was deleted")


@click.command("export", context_settings=CONTEXT)
@click.option(
    "--reach",
    metavar="IDS",
    type=Number("a number of ids", minimum=1),
    default=1_000_000,
    show_default=True,
    help="Give a direction up after so many ids without a job.",
)
@on_server()
@click.argument("tube", type=TubeType())
def export(server: Server, reach: int, tube: str) -> None:
    """Write the jobs of TUBE as JSON lines.

    Ready, delayed and buried jobs are written, and none is consumed.

    The protocol lists no jobs, so ids are asked for, from the first jobs of the tube outwards,
    until as many are found as there are. 100,000 jobs take some five seconds, as many ids without a
    job up to two. No job's counter moves. Each job is as it was at the moment it was read. Reserved
    jobs are left out, and said on stderr.

    \b
    A line is an object, in the order of ids:
      id, tube     what the job was; `import` does not look at them
      state        "ready", "delayed" or "buried"
      pri          number
      delay        seconds that a delayed job has left, else 0
      ttr          seconds
      body         the body, if it is UTF-8; or instead
      body_base64  the body's bytes in base64

    The order in which jobs were buried cannot be seen; they are in the order of their ids.

    \b
    Examples:
      beanstalkd-py export mails > mails.jsonl
      beanstalkd-py export mails | beanstalkd-py import --addr other:11300 mails
      beanstalkd-py export mails | jq -r 'select(.state == "buried") | .body'

    Exit status 1 if jobs may be missing: the tube changes fast, or there are more ids than --reach
    between its jobs.
    """
    from beanstalkd_py.admin.export import jobs_of
    from beanstalkd_py.admin.id_scan import scan

    with server.connect() as connection:
        found = scan(connection, tube, reach, _progress())
        for job in jobs_of(connection, found):
            write_json(job.to_json())
    _tell_what_is_missing(found, tube, reach)


def _tell_what_is_missing(found: Scan, tube: str, reach: int) -> None:
    if not found.complete:
        raise errors.IncompleteError(
            f"found {len(found.jobs)} of {counted(found.expected)} of tube {tube};"
            f" stop its clients if they are fast, or look farther than --reach {reach}"
        )
    if found.jobs:
        reserved = sum(job.state == "reserved" for job in found.jobs.values())
        if reserved:
            say(f"{counted(reserved, 'reserved job')} left out: clients have them")


def _progress() -> Progress | None:
    if not sys.stderr.isatty():
        return None

    def show(looked_at: int, found: int, expected: int) -> None:
        if looked_at % (1 << 18) == 0:
            say(f"{looked_at} ids looked at, {found} of {counted(expected)} found")

    return show


@click.command("import", context_settings=CONTEXT)
@click.option(
    "--skip",
    metavar="LINES",
    type=Number("a number of lines"),
    default=0,
    show_default=True,
    help="Begin after so many lines.",
)
@on_server(json="One JSON object: tube, put, line (the last one that is done with).")
@click.argument("tube", type=TubeType())
@click.argument("file", type=click.File("rb"), default="-")
def import_(server: Server, as_json: bool, skip: int, tube: str, file: IO[bytes]) -> None:
    """Put the jobs of FILE into TUBE.

    FILE has JSON lines as `export` writes them. Without FILE, stdin is read. Only body (or
    body_base64) is needed; without the others a job is ready, with priority 65536, delay 0 and a
    TTR of 60 s. Jobs are put in the order of lines and get new ids.

    If a line is wrong or its job is refused, no later line is done, and --skip goes on from there.
    A kill leaves the jobs of some last lines in the tube; the job of a line meant to be buried may
    then be there delayed for a century.

    \b
    Examples:
      beanstalkd-py import mails mails.jsonl
      echo '{"body": "to=ann", "pri": 0}' | beanstalkd-py import mails
      beanstalkd-py import --skip 1200 mails mails.jsonl
    """
    from beanstalkd_py.admin.import_jobs import Imported, import_lines

    imported = Imported()
    interrupts = HeldInterrupts()
    try:
        with interrupts.installed(), server.connect() as connection:
            import_lines(connection, tube, file, skip, imported, interrupts.held)
    except (errors.ToolUsageError, errors.RefusedError) as error:
        rest = f"; put {counted(imported.put)}, go on with --skip {imported.line}"
        error.args = (f"{error}{rest}",)
        raise
    except errors.NoConnectionError as error:
        rest = f"; the first {counted(imported.line, 'line')} are done, the next few may be"
        error.args = (f"{error}{rest}",)
        raise
    except KeyboardInterrupt:
        rest = f"put {counted(imported.put)}, go on with --skip {max(skip, imported.line)}"
        if interrupts.forced:
            rest = f"the first {counted(imported.line, 'line')} are done, the next few may be"
        raise errors.InterruptError(f"interrupted; {rest}") from None
    if as_json:
        write_json({"tube": tube, "put": imported.put, "line": imported.line})
    else:
        write_line(f"put {counted(imported.put)} into {tube}")
