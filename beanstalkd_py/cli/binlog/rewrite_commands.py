"""`binlog compact`, `repair` and `reshard`: commands that need exclusive use of the folder."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import click

from beanstalkd_py import errors
from beanstalkd_py.binlog.layout import HISTORY_ID, MOST_SHARDS, Layout
from beanstalkd_py.cli.argument_types import Number
from beanstalkd_py.cli.binlog.read_commands import FOLDER, folder_usage_errors
from beanstalkd_py.cli.options import AS_JSON, complete_folder, count_option, folder_option, option
from beanstalkd_py.cli.output import write_json, write_line, write_result
from beanstalkd_py.plural import counted
from beanstalkd_py.server import options
from beanstalkd_py.server.logging.setup import set_up_logging
from beanstalkd_py.server.parent.folder_checks import check_binlog_folder, check_history_folder
from beanstalkd_py.server.process import privileges

_FILE_SIZE = count_option(
    "-s --file-size",
    "Size of a new file.",
    "bytes",
    minimum=1,
    metavar="BYTES",
    default=options.DEFAULT_FILE_SIZE,
)
_ARCHIVE_FIRST = folder_option(
    "--history", "First archive finished jobs there, as a server with this option does."
)


def _archiver_options(history: str | None, top: Path) -> options.ServeOptions | None:
    """Return the options of an archiver for binlog folder `top`; None without `history`.

    Raises HistoryFolderError, and ToolUsageError if only the folder has a history.
    """
    if history is None:
        for id_file in (*top.glob(HISTORY_ID), *top.glob(f"shard-*/{HISTORY_ID}")):
            raise errors.ToolUsageError(
                f"{top} has a history; use --history DIR to archive finished jobs first,"
                f" or remove {id_file} to drop them"
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

    The new files do not record finished jobs. A folder with a history (serve --history) requires
    --history, which archives finished jobs first.

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
        archiver = _archiver_options(history, folder)
        with creating_as_owner_of(folder), locked_folder(folder, writing=True) as locked:
            if archiver is not None:
                archive_before_reshard(archiver, [shard.path for shard in locked.shards])
            steps = Steps(progress=progress_on_stderr(logging.INFO, "compacting", "bytes"))
            result = compact_folder(locked, file_size, steps)
    write_result(
        as_json,
        result.to_json(),
        f"freed {counted(result.freed, 'byte')}; jobs: {result.jobs},"
        f" files: {result.files_before} before, {result.files_after} now",
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
    with folder_usage_errors(), locked_folder(inspect_files(folder).top, writing=False) as locked:
        steps = Steps(progress=progress_on_stderr(logging.INFO, "repairing", "bytes"))
        target = default_output(folder) if output is None else output
        result = repair_folder(locked, target, file_size, steps)
    if as_json:
        write_json(result.to_json())
        return 0
    for damage in result.damage:
        write_line(str(damage))
    if result.output is None:
        write_line("no damage found; nothing was written")
    else:
        write_line(f"wrote {result.output}; jobs: {result.jobs}, files: {result.files}")
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

    The new files do not record finished jobs. A folder with a history (serve --history) requires
    --history, which archives finished jobs first.

    \b
    Example: beanstalkd-py binlog reshard --workers 1 /var/lib/beanstalkd
    """
    from beanstalkd_py.server.parent.shard_folders import reshard_here

    set_up_logging(1)
    layout = Layout.wanted(workers, os.fsencode(colocate))
    with folder_usage_errors():
        check_binlog_folder(str(folder))
        privileges.raise_descriptor_limit()
        reshard_here(folder, layout, file_size, logging.INFO, _archiver_options(history, folder))
