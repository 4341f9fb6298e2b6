"""`beanstalkd-py backup`: save binlog folders, also of running servers, and restore them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.binlog.read_commands import folder_usage_errors
from beanstalkd_py.cli.command_group import CommandGroup
from beanstalkd_py.cli.connection_options import CONTEXT
from beanstalkd_py.cli.options import (
    AS_JSON,
    complete_folder,
    count_option,
    folder_option,
    option,
)
from beanstalkd_py.cli.output import notice, write_line, write_result
from beanstalkd_py.cli.pipeline.spark_options import usage_errors
from beanstalkd_py.plural import counted

if TYPE_CHECKING:
    from beanstalkd_py.backup.target import Backup, Target

DAMAGED = 1
TARGET = click.argument("target", metavar="URL", shell_complete=complete_folder)
NAME = click.argument("name", metavar="[NAME]", required=False)


@click.group(cls=CommandGroup, context_settings=CONTEXT)
def backup() -> None:
    """Save the jobs of a server, and restore them.

    URL is a path, or a folder of another file system: s3://BUCKET/backups, gs://, abfs://, sftp://
    and others of fsspec. Credentials and endpoints are those of the environment. The commands need
    PyArrow (pip install 'beanstalkd_py[parquet]').

    \b
    Exit statuses: 0  success
                   1  damage, or an error of a disk
                   2  invalid request; nothing was changed
    """


@contextlib.contextmanager
def _target(url: str) -> Iterator[Target]:
    """Open a folder of backups, and convert errors in the block to those of a tool."""
    with usage_errors(), folder_usage_errors():
        try:
            from beanstalkd_py.backup.target import Target
        except ModuleNotFoundError as error:
            text = "backup requires PyArrow; run pip install 'beanstalkd_py[parquet]'"
            raise errors.ToolUsageError(f"{text} ({error})") from error
        yield Target(url)


def _path(folder: str | None) -> Path | None:
    return None if folder is None else Path(folder)


def _chosen(target: Target, name: str | None) -> Backup:
    """Return the backup of this name, or the latest."""
    if name is not None:
        return target.load(name)
    backups = target.backups()
    if not backups:
        raise errors.ToolUsageError(f"there is no backup in {target.url}")
    return backups[-1]


@backup.command()
@folder_option("-b --binlog folder", "Binlog folder of a server.", required=True)
@option(
    "--to url", "Folder of backups.", metavar="URL", shell_complete=complete_folder, required=True
)
@folder_option("--history", "Also save the history of the server.")
@option("--name", "Name of the backup.  [default: the time, as 20261126T180000Z]", metavar="NAME")
@AS_JSON
def create(folder: str, url: str, history: str | None, name: str | None, as_json: bool) -> int:
    """Save a binlog folder and a history; their server may be running.

    The backup has all jobs, tube policies and ticks of schedules of one moment, as a kill of the
    server at that moment would leave them. It shares unchanged files with earlier backups in URL,
    so run it often. A killed command leaves no incomplete backup.

    \b
    Example:
      beanstalkd-py backup create -b /var/lib/beanstalkd --to s3://queues/backups

    Exit status 1 for an error of a disk, 2 for a usage error.
    """
    begun_mono = time.monotonic()
    with _target(url) as target:
        from beanstalkd_py.backup.create import create as create_backup
        from beanstalkd_py.server.process import privileges

        privileges.raise_descriptor_limit()  # all files are open at once
        created = create_backup(Path(folder), target, name, _path(history))
    result = {
        "name": created.backup.name,
        "created": created.backup.created,
        "files": len(created.backup.files),
        "bytes": created.backup.size,
        "bytes_written": created.written,
    }
    write_result(
        as_json,
        result,
        f"{created.backup.name}: {counted(len(created.backup.files), 'file')},"
        f" {counted(created.backup.size, 'byte')}, {counted(created.written, 'byte')} written in"
        f" {time.monotonic() - begun_mono:.1f} s",
    )
    return 0


@backup.command("list")
@AS_JSON
@TARGET
def list_(as_json: bool, target: str) -> int:
    """List the backups in URL, oldest first."""
    with _target(target) as opened:
        for each in opened.backups():
            result = {
                "name": each.name,
                "created": each.created,
                "workers": each.workers,
                "history": each.has_history,
                "files": len(each.files),
                "bytes": each.size,
            }
            text = f"{each.name}  {each.created}  {counted(each.size, 'byte')}"
            write_result(as_json, result, text)
    return 0


@backup.command()
@TARGET
@NAME
def verify(target: str, name: str | None) -> int:
    """Check the contents of a backup, by default the latest.

    Exit status 1 for damage or an error of a disk, 2 for a usage error.
    """
    with _target(target) as opened:
        from beanstalkd_py.backup.restore import verify as verify_backup

        chosen = _chosen(opened, name)
        damage = 0
        for line in verify_backup(chosen, opened):
            damage += 1
            write_line(line)
    if damage:
        notice(f"{chosen.name} is damaged: {counted(damage, 'file')} of {len(chosen.files)}")
        return DAMAGED
    notice(f"{chosen.name} is undamaged: {counted(len(chosen.files), 'file')}")
    return 0


@backup.command()
@folder_option("-b --binlog folder", "New binlog folder: missing or empty.", required=True)
@folder_option("--history", "New folder for the history: missing or empty.")
@TARGET
@NAME
def restore(folder: str, history: str | None, target: str, name: str | None) -> int:
    """Write a backup, by default the latest, to new folders.

    Start a server there with the same number of workers, or with another one, as on any folder.
    Jobs that were deleted after the backup exist again. A killed command leaves the binlog folder
    as it was; remove the history if it is there. Without --history, a server begins a new history.

    \b
    Example:
      beanstalkd-py backup restore s3://queues/backups -b /var/lib/beanstalkd

    Exit status 1 for damage or an error of a disk, 2 for a usage error.
    """
    with _target(target) as opened:
        from beanstalkd_py.backup.restore import restore as restore_backup

        chosen = _chosen(opened, name)
        restore_backup(chosen, opened, Path(folder), _path(history))
    notice(f"restored {chosen.name} of {chosen.created} to {folder}")
    return 0


@backup.command()
@TARGET
@count_option("--keep", "Number of backups to keep.", "backups", 1, metavar="N", required=True)
@AS_JSON
def prune(target: str, keep: int, as_json: bool) -> int:
    """Remove all backups but the latest ones.

    Their contents are removed unless a later backup has them. Do not create a backup in URL
    meanwhile.

    \b
    Example:
      beanstalkd-py backup prune s3://queues/backups --keep 168

    Exit status 1 for an error of a disk or a damaged backup, 2 for a usage error.
    """
    with _target(target) as opened:
        old = [each.name for each in opened.backups()[:-keep]]
        chunks = opened.remove(old)
    write_result(
        as_json,
        {"removed": old, "chunks_removed": chunks},
        f"removed {counted(len(old), 'backup')} and {counted(chunks, 'chunk')}",
    )
    return 0
