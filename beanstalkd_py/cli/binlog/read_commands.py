"""`binlog dump`, `stats` and `verify`: commands that read, beside a running server too."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.number_arguments import Number
from beanstalkd_py.cli.path_completion import complete_folder
from beanstalkd_py.cli.time_arguments import Moment
from beanstalkd_py.cli.usage_errors import told_as_unreadable, told_with_status_2

if TYPE_CHECKING:
    from beanstalkd_py.binlog.file_usage import FolderUsage
    from beanstalkd_py.binlog.verify import Verdict

DAMAGED = 1
STATES = ("ready", "reserved", "delayed", "buried", "deleted")

_FOLDER = click.argument(
    "folder",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    shell_complete=complete_folder,
)
_JSON = click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")


def _say(text: str) -> None:
    click.echo(f"beanstalkd-py: {text}", err=True)


@click.command()
@click.option("--id", "ids", metavar="ID", multiple=True, type=Number("a job id", minimum=1))
@click.option("--tube", "tubes", metavar="TUBE", multiple=True, help="Only of this tube.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES))
@click.option("--since", metavar="TIME", type=Moment(), help="Only of then or later.")
@click.option("--until", metavar="TIME", type=Moment(), help="Only of before then.")
@click.option("--follow", "-F", is_flag=True, help="Go on as the server writes, until Ctrl-C.")
@_JSON
@_FOLDER
def dump(
    ids: tuple[int, ...],
    tubes: tuple[str, ...],
    states: tuple[str, ...],
    since: int | None,
    until: int | None,
    follow: bool,
    as_json: bool,
    folder: Path,
) -> int:
    """Show every entry of FOLDER, one per line.

    An entry says what became of a job: a full one has tube and body, a short one a new state. --id,
    --tube and --state may be given several times. TIME is UTC, 2026-11-21T15:00:00, or how long
    ago: 90s, 15m, 2h, 3d. An entry of C beanstalkd that has no time counts as of the latest time
    known before it. Places that cannot be read are shown whatever is asked for.

    The column `checksum` says right, or - where an entry has none (C beanstalkd writes none), or
    foreign where C beanstalkd copied it along from an older entry.

    \b
    Examples:
      beanstalkd-py binlog dump /var/lib/beanstalkd
      beanstalkd-py binlog dump --tube mails --state buried --since 2h \\
          /var/lib/beanstalkd
      beanstalkd-py binlog dump --json --follow /var/lib/beanstalkd | jq .id

    Exit status 1 if something is damaged, 2 for a mistake.
    """
    from beanstalkd_py.binlog import dump as dumping
    from beanstalkd_py.binlog.folders import look_at, look_at_files
    from beanstalkd_py.core.binlog_reader import TIME_MAX, TIME_MIN, Selection

    selection = Selection(
        as_json=as_json,
        ids=ids,
        tubes=tuple(os.fsencode(tube) for tube in tubes),
        states=states,
        since=TIME_MIN if since is None else since,
        until=TIME_MAX if until is None else until,
    )
    out = sys.stdout.buffer

    def sink(text: Any) -> None:
        try:
            out.write(text)
            if follow:
                out.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise errors.OutputError(f"cannot write the output: {error.strerror}") from error

    try:
        with told_with_status_2():
            # What follows may wait for the first file.
            found = look_at(folder) if follow else look_at_files(folder)
        if not as_json:
            _head(dumping.headings(found))
        with told_as_unreadable(folder):
            if follow:
                dumping.follow(found, selection, sink)
            clean = dumping.dump(found, selection, sink)
            out.flush()
    except BrokenPipeError:
        # Whoever read it has seen enough; Python must not find out again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 0 if clean else DAMAGED


def _head(headings: str) -> None:
    click.secho(headings, bold=True, nl=False)
    sys.stdout.flush()


@click.command()
@_JSON
@_FOLDER
def verify(as_json: bool, folder: Path) -> int:
    """Check every entry of FOLDER; one line for each damage.

    A line is `file:offset: what is wrong`. What a server complains of at its start is damage here,
    and nothing else is. An entry that a running server is just writing is said on stderr and is no
    damage.

    \b
    Examples:
      beanstalkd-py binlog verify /var/lib/beanstalkd && echo clean
      beanstalkd-py binlog verify --json /var/lib/beanstalkd | jq .damage

    Exit status 1 if something is damaged, 2 for a mistake.
    """
    from beanstalkd_py.binlog.file_walk import Damage
    from beanstalkd_py.binlog.folders import look_at_files
    from beanstalkd_py.binlog.verify import verify as check

    def tell(damage: Damage) -> None:
        if damage.tail:
            _say(str(damage))
        elif not as_json:
            click.echo(str(damage))

    with told_with_status_2():
        found = look_at_files(folder)
    with told_as_unreadable(folder):
        verdict = check(found, tell)
    if as_json:
        click.echo(json.dumps(verdict.to_json()))
    else:
        _say(_summary(verdict))
    return 0 if verdict.clean else DAMAGED


def _summary(verdict: Verdict) -> str:
    what = "clean" if verdict.clean else f"damaged; places: {len(verdict.damage)}"
    return (
        f"{what}, files: {verdict.files}, bytes: {verdict.size},"
        f" entries: {verdict.entries}, live jobs: {verdict.jobs}"
    )


@click.command()
@_JSON
@_FOLDER
def stats(as_json: bool, folder: Path) -> int:
    """Show how much of each file in FOLDER is still needed.

    Live bytes are the full and the last short entries of jobs that are there. A file is removed
    when no job has its full entry in it and no older file is left: those jobs pin it.

    \b
    Examples:
      beanstalkd-py binlog stats /var/lib/beanstalkd
      beanstalkd-py binlog stats --json /var/lib/beanstalkd | jq .total.live_bytes

    Exit status 1 if something is damaged, 2 for a mistake.
    """
    from beanstalkd_py.binlog.file_usage import process_usage
    from beanstalkd_py.binlog.folders import look_at_files

    with told_with_status_2():
        found = look_at_files(folder)
    with told_as_unreadable(folder):
        usage = process_usage(found)
    if as_json:
        click.echo(json.dumps(usage.to_json()))
    else:
        _show(usage)
    for damage in usage.damage:
        _say(str(damage))
    return DAMAGED if usage.damage else 0


def _show(usage: FolderUsage) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_footer=True)
    total = usage.total()
    share = f"{100 * total.live_bytes / total.size:.0f}%" if total.size else "-"
    table.add_column("file", "total", no_wrap=True)
    table.add_column("version", "")
    for heading, footer in (
        ("bytes", f"{total.size:,}"),
        ("live bytes", f"{total.live_bytes:,}"),
        ("live", share),
        ("full entries", f"{total.full_entries:,}"),
        ("short entries", f"{total.short_entries:,}"),
        ("jobs", f"{total.jobs:,}"),
    ):
        table.add_column(heading, footer, justify="right", no_wrap=True)
    for file in usage.files:
        table.add_row(
            file.file,
            "-" if file.version is None else str(file.version),
            f"{file.size:,}",
            f"{file.live_bytes:,}",
            f"{100 * file.live_bytes / file.size:.0f}%" if file.size else "-",
            f"{file.full_entries:,}",
            f"{file.short_entries:,}",
            f"{file.jobs:,}",
        )
    # Off a terminal a line is never cut to the width of one.
    width = None if sys.stdout.isatty() else 160
    Console(width=width, highlight=False).print(table)
