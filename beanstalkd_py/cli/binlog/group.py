"""`beanstalkd-py binlog`: read binlog folders, and rewrite folders that no server uses."""

from __future__ import annotations

import click

from beanstalkd_py.cli.binlog import read_commands, rewrite_commands
from beanstalkd_py.cli.command_group import CommandGroup
from beanstalkd_py.cli.connection_options import CONTEXT


@click.group(cls=CommandGroup, context_settings=CONTEXT)
def binlog() -> None:
    """Read a binlog folder, or rewrite one that no server is using.

    dump, verify and stats also read the folder of a running server. All commands accept folders of
    C beanstalkd, including version 5, and folders that are divided among workers.

    \b
    Exit statuses: 0  success
                   1  damaged entries, or an error of the disk
                   2  invalid request; nothing was changed
    """


for command in (
    *(read_commands.dump, read_commands.stats, read_commands.verify),
    *(rewrite_commands.compact, rewrite_commands.repair, rewrite_commands.reshard),
):
    binlog.add_command(command)
