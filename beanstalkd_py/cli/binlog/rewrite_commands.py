"""`binlog compact`, `repair` and `reshard`: commands that need exclusive use of the folder."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import click

from beanstalkd_py import errors
from beanstalkd_py.binlog.layout import HISTORY_ID, MOST_SHARDS, Layout
from beanstalkd_py.cli.argument_types import INT64_MAX, Number
from beanstalkd_py.cli.binlog.read_commands import FOLDER, folder_usage_errors
from beanstalkd_py.cli.options import AS_JSON, complete_folder, folder_option, option
from beanstalkd_py.plural import counted
from beanstalkd_py.server import options
from beanstalkd_py.server.logging.setup import set_up_logging
from beanstalkd_py.server.parent.folder_checks import check_binlog_folder, check_history_folder
from beanstalkd_py.server.process import privileges

_FILE_SIZE = option(
    "-s --file-size",
    "Size of a new file.",
    Number("a number of bytes", minimum=1, maximum=INT64_MAX),
    metavar="BYTES",
    default=options.DEFAULT_FILE_SIZE,
)
_ARCHIVE_FIRST = folder_option(
    "--history", "First archive finished jobs there, as a server with this option does."
)


def _archive_rules(history: str | None, top: Path) -> options.ServeOptions | None:
    """Return the archiver's settings for binlog folder `top`; None without a history.

    Raises HistoryFolderError. Raises ToolUsageError if the folder has a history and `history` is
    None.
    """
    if history is None:
        for mark in (*top.glob(HISTORY_ID), *top.glob(f"shard-*/{HISTORY_ID}")):
            raise errors.ToolUsageError(
                f"{top} has a history; use --history DIR to archive finished jobs first,"
                f" or remove {mark} to drop them"
            )
        return None
    check_history_folder(history, str(top))
    return options.ServeOptions(history=history)


@click.command()
@_FILE_SIZE
@_ARCHIVE_FIRST
@AS_JSON
@FOLDER
def compact(file_size: int, history: str | None, as_json: bool, folder: Path) -> int:
    """Rewrite the jobs of FOLDER to as few files as possible.

    Removes the old files. No server may run on the folder. The command needs disk space for a
    second copy of all jobs, and is crash-safe: the folder has all its jobs at any time. It does not
    change a damaged folder.

    The new files do not record finished jobs. If the folder has a history (serve --history) and its
    server did not stop cleanly, --history archives finished jobs first.

    \b
    Examples:
      beanstalkd-py binlog compact /var/lib/beanstalkd
      beanstalkd-py binlog compact -s 104857600 --json /var/lib/beanstalkd \\
          | jq .bytes_freed

    Exit status 1 for a damaged folder or an error of the disk, 2 for a usage error.
    """
    from beanstalkd_py.binlog.compact import compact as compact_folder
    from beanstalkd_py.binlog.folders import inspect_files, locked_folder
    from beanstalkd_py.binlog.ownership import creating_as_owner_of
    from beanstalkd_py.binlog.progress import progress_on_stderr
    from beanstalkd_py.binlog.steps import Steps
    from beanstalkd_py.server.parent.shard_folders import archive_before_reshard

    set_up_logging(1)
    privileges.raise_descriptor_limit()
    with folder_usage_errors():
        inspect_files(folder)
        rules = _archive_rules(history, folder)
        with creating_as_owner_of(folder), locked_folder(folder, writing=True) as found:
            if rules is not None:
                archive_before_reshard(rules, [shard.path for shard in found.shards])
            steps = Steps(progress=progress_on_stderr(logging.INFO, "compacting", "bytes"))
            done = compact_folder(found, file_size, steps)
    if as_json:
        click.echo(json.dumps(done.to_json()))
    else:
        click.echo(
            f"freed {counted(done.freed, 'byte')}; jobs: {done.jobs},"
            f" files: {done.files_before} before, {done.files_after} now"
        )
    return 0


@click.command()
@option(
    "-o --output",
    "New folder.  [default: FOLDER.repaired]",
    click.Path(path_type=Path),
    metavar="NEW",
    shell_complete=complete_folder,
)
@_FILE_SIZE
@AS_JSON
@FOLDER
def repair(output: Path | None, file_size: int, as_json: bool, folder: Path) -> int:
    """Copy every readable job of FOLDER to a new folder.

    Does not change FOLDER; no server may run on it. Prints one line `file:offset: damage` for each
    loss. The new folder appears when it is complete. Without damage, nothing is written.

    \b
    Examples:
      beanstalkd-py binlog repair /var/lib/beanstalkd
      beanstalkd-py binlog repair --output /mnt/rescued --json /var/lib/beanstalkd

    Exit status 1 for an error of the disk, 2 for a usage error.
    """
    from beanstalkd_py.binlog.folders import inspect_files, locked_folder
    from beanstalkd_py.binlog.progress import progress_on_stderr
    from beanstalkd_py.binlog.repair import default_output
    from beanstalkd_py.binlog.repair import repair as repair_folder
    from beanstalkd_py.binlog.steps import Steps

    set_up_logging(1)
    privileges.raise_descriptor_limit()
    with folder_usage_errors(), locked_folder(inspect_files(folder).top, writing=False) as found:
        steps = Steps(progress=progress_on_stderr(logging.INFO, "repairing", "bytes"))
        target = default_output(folder) if output is None else output
        done = repair_folder(found, target, file_size, steps)
    if as_json:
        click.echo(json.dumps(done.to_json()))
        return 0
    for damage in done.damage:
        click.echo(str(damage))
    if done.output is None:
        click.echo("no damage found; nothing was written")
    else:
        click.echo(f"wrote {done.output}; jobs: {done.jobs}, files: {done.files}")
    return 0


@click.command()
@option(
    "--workers",
    "Number of workers; 1 makes a folder that C beanstalkd can open.",
    Number("a number of workers", minimum=1, maximum=MOST_SHARDS),
    required=True,
)
@option(
    "--colocate",
    "Assign tubes whose names are equal up to SEP to the same worker.",
    metavar="SEP",
    default="",
)
@_FILE_SIZE
@_ARCHIVE_FIRST
@FOLDER
def reshard(workers: int, colocate: str, file_size: int, history: str | None, folder: Path) -> None:
    """Divide the jobs of FOLDER among another number of workers.

    A server reshards by itself when it starts with another --workers or --colocate. The command
    needs disk space for a second copy of all jobs, and is crash-safe: the folder has all its jobs
    at any time, and the next start or the same command continues.

    The new files do not record finished jobs. If the folder has a history (serve --history) and its
    server did not stop cleanly, --history archives finished jobs first.

    \b
    Example: beanstalkd-py binlog reshard --workers 1 /var/lib/beanstalkd
    """
    from beanstalkd_py.server.parent.shard_folders import reshard_here

    set_up_logging(1)
    layout = Layout.wanted(workers, os.fsencode(colocate))
    with folder_usage_errors():
        check_binlog_folder(str(folder))
        privileges.raise_descriptor_limit()
        reshard_here(folder, layout, file_size, logging.INFO, _archive_rules(history, folder))
