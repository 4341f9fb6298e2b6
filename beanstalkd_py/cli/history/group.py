"""`beanstalkd-py history`: which store, and the commands for it."""

from __future__ import annotations

from pathlib import Path

import click

from beanstalkd_py.cli.command_group import CommandGroup
from beanstalkd_py.cli.history import export, maintenance, replay, search, status
from beanstalkd_py.cli.history.store_options import Place
from beanstalkd_py.cli.number_arguments import Number
from beanstalkd_py.cli.path_completion import complete_folder

_INT32_MAX = 2**31 - 1


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--store",
    metavar="DIR",
    envvar="BEANSTALKD_HISTORY",
    type=click.Path(path_type=Path),
    shell_complete=complete_folder,
    help="The folder of the store; or in the environment as BEANSTALKD_HISTORY.",
)
@click.option(
    "--index-slots",
    metavar="N",
    type=Number("a number of slots", minimum=1, maximum=_INT32_MAX),
    help="Slots of an index file, where the files do not tell.",
)
@click.option(
    "--index-entries",
    metavar="N",
    type=Number("a number of entries", minimum=2, maximum=_INT32_MAX),
    help="Entries of an index file, where the files do not tell.",
)
@click.pass_context
def history(
    ctx: click.Context, store: Path | None, index_slots: int | None, index_entries: int | None
) -> None:
    """Look into a history store, or into a store of Apache RocketMQ.

    All commands but expire only read the store: they change no byte of it, take no lock, and work
    beside whoever writes it; status asks the server that does. A TUBE is given by its name; a topic
    of RocketMQ that is no tube's as it is. TIME is UTC, 2026-11-21T15:00:00, or how long ago: 90s,
    15m, 2h, 3d. It is that of storing.

    \b
    Examples:
      beanstalkd-py history --store /var/lib/history topics
      beanstalkd-py history --store /var/lib/history get 4711

    \b
    Exit statuses: 0  all is well
                   1  something is damaged or not there, or the disk refused
                   2  a mistake: no such store or tube, for example
    """
    ctx.obj = Place(store, index_slots, index_entries)


for command in (
    *(search.topics, search.ls, search.get),
    *(search.query, search.tail),
    *(maintenance.verify, export.export, maintenance.expire),
    *(replay.replay, status.status),
):
    history.add_command(command)
