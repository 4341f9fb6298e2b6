"""`binlog compact` and `binlog repair`: commands that need the folder for themselves."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import click

from beanstalkd_py.cli.number_arguments import INT64_MAX, Number
from beanstalkd_py.cli.path_completion import complete_folder
from beanstalkd_py.cli.server.history_options import ARCHIVE_FIRST, rules_of
from beanstalkd_py.cli.usage_errors import told_with_status_2
from beanstalkd_py.plural import counted
from beanstalkd_py.server import options
from beanstalkd_py.server.logging.setup import set_up_logging
from beanstalkd_py.server.process import privileges

_FOLDER = click.argument(
    "folder",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    shell_complete=complete_folder,
)
_JSON = click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")
_FILE_SIZE = click.option(
    *("-s", "--file-size"),
    metavar="BYTES",
    type=Number("a number of bytes", minimum=1, maximum=INT64_MAX),
    default=options.DEFAULT_FILE_SIZE,
    show_default=True,
    help="Size of one new file.",
)


@click.command()
@_FILE_SIZE
@ARCHIVE_FIRST
@_JSON
@_FOLDER
def compact(file_size: int, history: str | None, as_json: bool, folder: Path) -> int:
    """Rewrite the jobs of FOLDER to as few files as possible.

    The old files are removed. No server may run on it. It needs room for a second copy of all jobs
    meanwhile, and may be interrupted at any point: the folder then has all its jobs. A damaged
    folder is left as it is.

    The new files do not tell which jobs have ended. If a history is kept (serve --history) and the
    server was not stopped in order, --history has those told first.

    \b
    Examples:
      beanstalkd-py binlog compact /var/lib/beanstalkd
      beanstalkd-py binlog compact -s 104857600 --json /var/lib/beanstalkd \\
          | jq .bytes_freed

    Exit status 1 if the folder is damaged or the disk refused, 2 for a mistake.
    """
    from beanstalkd_py.binlog.compact import compact as compact_folder
    from beanstalkd_py.binlog.folders import held, look_at_files
    from beanstalkd_py.binlog.ownership import creating_as_owner_of
    from beanstalkd_py.binlog.progress import progress_on_stderr
    from beanstalkd_py.server.parent.shard_folders import archive_before

    set_up_logging(1)
    privileges.raise_descriptor_limit()
    with told_with_status_2():
        look_at_files(folder)
        rules = rules_of(history, folder)
        with creating_as_owner_of(folder), held(folder, writing=True) as found:
            if rules is not None:
                archive_before(rules, [shard.path for shard in found.shards])
            progress = progress_on_stderr(logging.INFO, "compacting", "bytes")
            done = compact_folder(found, file_size, progress=progress)
    if as_json:
        click.echo(json.dumps(done.to_json()))
    else:
        click.echo(
            f"freed {counted(done.freed, 'byte')}; jobs: {done.jobs},"
            f" files: {done.files_before} before, {done.files_after} now"
        )
    return 0


@click.command()
@click.option(
    *("-o", "--output"),
    metavar="NEW",
    type=click.Path(path_type=Path),
    shell_complete=complete_folder,
    help="The new folder; FOLDER.repaired unless told.",
)
@_FILE_SIZE
@_JSON
@_FOLDER
def repair(output: Path | None, file_size: int, as_json: bool, folder: Path) -> int:
    """Write every job of FOLDER that can be read to a new folder.

    FOLDER stays as it is, and no server may run on it. What could not be kept is said, one line
    `file:offset: what is wrong` each. The new folder appears when it is complete. If nothing is
    wrong, nothing is written.

    \b
    Examples:
      beanstalkd-py binlog repair /var/lib/beanstalkd
      beanstalkd-py binlog repair --output /mnt/rescued --json /var/lib/beanstalkd

    Exit status 1 if the disk refused, 2 for a mistake.
    """
    from beanstalkd_py.binlog.folders import held, look_at_files
    from beanstalkd_py.binlog.progress import progress_on_stderr
    from beanstalkd_py.binlog.repair import default_output
    from beanstalkd_py.binlog.repair import repair as repair_folder

    set_up_logging(1)
    privileges.raise_descriptor_limit()
    with told_with_status_2(), held(look_at_files(folder).top, writing=False) as found:
        progress = progress_on_stderr(logging.INFO, "repairing", "bytes")
        target = default_output(folder) if output is None else output
        done = repair_folder(found, target, file_size, progress=progress)
    if as_json:
        click.echo(json.dumps(done.to_json()))
        return 0
    for damage in done.damage:
        click.echo(str(damage))
    if done.output is None:
        click.echo("nothing is damaged; nothing was written")
    else:
        click.echo(f"wrote {done.output}; jobs: {done.jobs}, files: {done.files}")
    return 0
