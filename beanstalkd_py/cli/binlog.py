"""`beanstalkd-py binlog`: what can be done to a binlog folder while no server runs on it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import click

from beanstalkd_py.binlog.layout import MOST_SHARDS, Layout
from beanstalkd_py.cli.numbers import INT64_MAX, Number
from beanstalkd_py.server import options, privileges
from beanstalkd_py.server.folder import check_binlog_folder
from beanstalkd_py.server.logs import set_up_logging


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def binlog() -> None:
    """Look after a binlog folder that no server is using."""


@binlog.command()
@click.option(
    "--workers",
    metavar="N",
    required=True,
    type=Number("a number of workers", minimum=1, maximum=MOST_SHARDS),
    help="Divide the folder for so many workers; 1 makes it one that C beanstalkd opens.",
)
@click.option(
    "--colocate",
    metavar="SEP",
    default="",
    help="Keep tubes together whose names are the same up to SEP.",
)
@click.option(
    *("-s", "--file-size"),
    metavar="BYTES",
    type=Number("a number of bytes", minimum=1, maximum=INT64_MAX - options.FILE_SIZE_UNIT),
    default=options.DEFAULT_FILE_SIZE,
    show_default=True,
    help="Size of one binlog file, rounded up to a multiple of 4096.",
)
@click.argument("folder", metavar="FOLDER")
def reshard(workers: int, colocate: str, file_size: int, folder: str) -> None:
    """Divide the jobs of FOLDER among another number of workers.

    A server does this by itself when it is started with another --workers or --colocate. It needs
    room for a second copy of all jobs meanwhile, and may be interrupted at any point: the folder
    then has all its jobs, and the next start, or the same command, goes on.
    """
    from beanstalkd_py.server.shards import reshard_here

    set_up_logging(1)
    check_binlog_folder(folder)
    _become_owner(Path(folder))
    privileges.raise_descriptor_limit()
    wanted = Layout.wanted(workers, os.fsencode(colocate))
    reshard_here(Path(folder), wanted, options.round_file_size(file_size), logging.INFO)


def _become_owner(folder: Path) -> None:
    """What root writes there the server could not read."""
    if os.geteuid() == 0:
        status = folder.stat()
        os.setegid(status.st_gid)
        os.seteuid(status.st_uid)
