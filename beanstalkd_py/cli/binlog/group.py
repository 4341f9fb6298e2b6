"""`beanstalkd-py binlog`: looking at a binlog folder, and changing one that no server uses."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import click

from beanstalkd_py.binlog.layout import MOST_SHARDS, Layout
from beanstalkd_py.cli.binlog import read_commands, rewrite_commands
from beanstalkd_py.cli.command_group import CommandGroup
from beanstalkd_py.cli.number_arguments import INT64_MAX, Number
from beanstalkd_py.cli.path_completion import complete_folder
from beanstalkd_py.cli.server.history_options import ARCHIVE_FIRST, rules_of
from beanstalkd_py.cli.usage_errors import told_with_status_2
from beanstalkd_py.server import options
from beanstalkd_py.server.logging.setup import set_up_logging
from beanstalkd_py.server.parent.folder_checks import check_binlog_folder
from beanstalkd_py.server.process import privileges


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
def binlog() -> None:
    """Look at a binlog folder, or change one that no server is using.

    dump, verify and stats read a folder on which a server is running, too. All commands take
    folders of C beanstalkd, version 5 included, and those divided among workers.

    \b
    Exit statuses: 0  all is well
                   1  something is damaged, or the disk refused
                   2  what was asked for cannot be done; nothing was changed
    """


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
    type=Number("a number of bytes", minimum=1, maximum=INT64_MAX),
    default=options.DEFAULT_FILE_SIZE,
    show_default=True,
    help="Size of one binlog file.",
)
@ARCHIVE_FIRST
@click.argument("folder", metavar="FOLDER", shell_complete=complete_folder)
def reshard(workers: int, colocate: str, file_size: int, history: str | None, folder: str) -> None:
    """Divide the jobs of FOLDER among another number of workers.

    A server does this by itself when it is started with another --workers or --colocate. It needs
    room for a second copy of all jobs meanwhile, and may be interrupted at any point: the folder
    then has all its jobs, and the next start, or the same command, goes on.

    The new files do not tell which jobs have ended. If a history is kept (serve --history) and the
    server was not stopped in order, --history has those told first.

    \b
    Example: beanstalkd-py binlog reshard --workers 1 /var/lib/beanstalkd
    """
    from beanstalkd_py.server.parent.shard_folders import reshard_here

    set_up_logging(1)
    wanted = Layout.wanted(workers, os.fsencode(colocate))
    with told_with_status_2():
        check_binlog_folder(folder)
        privileges.raise_descriptor_limit()
        rules = rules_of(history, Path(folder))
        reshard_here(Path(folder), wanted, file_size, logging.INFO, rules)


for command in (rewrite_commands.compact, rewrite_commands.repair):
    binlog.add_command(command)
for command in (read_commands.dump, read_commands.stats, read_commands.verify):
    binlog.add_command(command)
