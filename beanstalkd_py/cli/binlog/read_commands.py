"""`binlog dump`, `stats` and `verify`: commands that also read the folder of a running server."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli import output
from beanstalkd_py.cli.argument_types import Number, TimeType
from beanstalkd_py.cli.options import AS_JSON, complete_folder, option

if TYPE_CHECKING:
    from beanstalkd_py.binlog.file_usage import FileUsage, FolderUsage
    from beanstalkd_py.binlog.verify import Verdict

DAMAGED = 1
STATES = ("ready", "reserved", "delayed", "buried", "deleted")

FOLDER = click.argument(
    "folder", metavar="FOLDER", type=click.Path(path_type=Path), shell_complete=complete_folder
)


@contextlib.contextmanager
def folder_usage_errors() -> Iterator[None]:
    """Convert errors about a missing, locked or unsuitable folder to ToolUsageError (status 2)."""
    try:
        yield
    except (errors.BinlogFolderError, errors.HistoryFolderError) as error:
        raise errors.ToolUsageError(str(error)) from error


@contextlib.contextmanager
def _read_errors(folder: Path) -> Iterator[None]:
    """Convert OSError to BinlogToolError."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        text = f"cannot read binlog folder {folder}: {error.strerror}"
        raise errors.BinlogToolError(text) from error


@click.command()
@option("--id ids", kind=Number("a job id", minimum=1), metavar="ID", multiple=True)
@option("--tube tubes", "Only entries of this tube.", metavar="TUBE", multiple=True)
@option("--state states", kind=click.Choice(STATES), multiple=True)
@option("--since", "Only entries at or after TIME.", TimeType())
@option("--until", "Only entries before TIME.", TimeType())
@option("--follow -F", "Wait for new entries until Ctrl-C.", is_flag=True)
@AS_JSON
@FOLDER
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
    """Print every entry of FOLDER, one per line.

    An entry records a change of a job: a full entry has its tube and body, a short one its new
    state. --id, --tube and --state may be repeated. TIME is UTC, 2026-11-21T15:00:00, or a duration
    before now: 90s, 15m, 2h, 3d. An entry of C beanstalkd without a time has the latest time before
    it. Damaged places are always printed.

    The column `checksum` is "right"; "-" for an entry without checksum (C beanstalkd writes none);
    "foreign" if C beanstalkd copied the checksum of an older entry.

    \b
    Examples:
      beanstalkd-py binlog dump /var/lib/beanstalkd
      beanstalkd-py binlog dump --tube mails --state buried --since 2h \\
          /var/lib/beanstalkd
      beanstalkd-py binlog dump --json --follow /var/lib/beanstalkd | jq .id

    Exit status 1 for damaged entries, 2 for a usage error.
    """
    from beanstalkd_py.binlog import dump as dumping
    from beanstalkd_py.binlog.folders import inspect_files, inspect_folder
    from beanstalkd_py.core.binlog_reader import TIME_MAX, TIME_MIN, Selection

    selection = Selection(
        as_json=as_json,
        ids=ids,
        tubes=tuple(os.fsencode(tube) for tube in tubes),
        states=states,
        since=TIME_MIN if since is None else since,
        until=TIME_MAX if until is None else until,
    )
    sink = partial(_write, is_flushed=follow)
    try:
        with folder_usage_errors():
            # --follow may wait for the first file.
            inspected = inspect_folder(folder) if follow else inspect_files(folder)
        if not as_json:
            click.secho(dumping.headings(inspected), bold=True, nl=False)
            sys.stdout.flush()
        with _read_errors(folder):
            if follow:
                dumping.follow(inspected, selection, sink)
            clean = dumping.dump(inspected, selection, sink)
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        # The reader has closed the pipe; Python's flush at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 0 if clean else DAMAGED


def _write(text: Any, is_flushed: bool) -> None:
    """Write to stdout. Raises OutputError, BrokenPipeError."""
    try:
        sys.stdout.buffer.write(text)
        if is_flushed:
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise errors.OutputError(f"cannot write to stdout: {error.strerror}") from error


@click.command()
@AS_JSON
@FOLDER
def verify(as_json: bool, folder: Path) -> int:
    """Check every entry of FOLDER; print one line for each damage.

    A line is `file:offset: damage`. Damage is exactly what a server reports at its start. An entry
    that a running server is writing is reported on stderr and is not damage.

    \b
    Examples:
      beanstalkd-py binlog verify /var/lib/beanstalkd && echo clean
      beanstalkd-py binlog verify --json /var/lib/beanstalkd | jq .damage

    Exit status 1 for damage, 2 for a usage error.
    """
    from beanstalkd_py.binlog.file_walk import Damage
    from beanstalkd_py.binlog.folders import inspect_files
    from beanstalkd_py.binlog.verify import verify as check

    def report(damage: Damage) -> None:
        if damage.tail:
            output.notice(str(damage))
        elif not as_json:
            click.echo(str(damage))

    with folder_usage_errors():
        inspected = inspect_files(folder)
    with _read_errors(folder):
        verdict = check(inspected, report)
    if as_json:
        output.write_json(verdict.to_json())
    else:
        output.notice(_summary(verdict))
    return 0 if verdict.clean else DAMAGED


def _summary(verdict: Verdict) -> str:
    result = "clean" if verdict.clean else f"damaged; places: {len(verdict.damage)}"
    return (
        f"{result}, files: {verdict.files}, bytes: {verdict.bytes},"
        f" entries: {verdict.entries}, live jobs: {verdict.jobs}"
    )


@click.command()
@AS_JSON
@FOLDER
def stats(as_json: bool, folder: Path) -> int:
    """Show the live share of each file in FOLDER.

    Live bytes are the full entries and the last short entries of existing jobs. The server removes
    a file when it is the oldest one and has no full entry of an existing job.

    \b
    Examples:
      beanstalkd-py binlog stats /var/lib/beanstalkd
      beanstalkd-py binlog stats --json /var/lib/beanstalkd | jq .total.live_bytes

    Exit status 1 for damage, 2 for a usage error.
    """
    from beanstalkd_py.binlog.file_usage import folder_usage
    from beanstalkd_py.binlog.folders import inspect_files

    with folder_usage_errors():
        inspected = inspect_files(folder)
    with _read_errors(folder):
        usage = folder_usage(inspected)
    if as_json:
        output.write_json(usage.to_json())
    else:
        _show(usage)
    for damage in usage.damage:
        output.notice(str(damage))
    return DAMAGED if usage.damage else 0


def _show(usage: FolderUsage) -> None:
    headings = ("file", "version", "bytes", "live bytes", "live", "full entries", "short entries")
    rows = [_cells(file) for file in [*usage.files, usage.total()]]
    output.write_table(output.Table((*headings, "jobs"), rows))


def _cells(file: FileUsage) -> output.Row:
    version = "-" if file.version is None else str(file.version)
    live = f"{100 * file.live_bytes / file.bytes:3.0f}%" if file.bytes else "   -"
    entries = (file.full_entries, file.short_entries)
    return (file.file, version, file.bytes, file.live_bytes, live, *entries, file.jobs)
