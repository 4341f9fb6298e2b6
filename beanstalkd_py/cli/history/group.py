"""`beanstalkd-py history`: the group of commands and the options of the store."""

from __future__ import annotations

from pathlib import Path

import click

from beanstalkd_py.cli.command_group import CommandGroup
from beanstalkd_py.cli.connection_options import CONTEXT
from beanstalkd_py.cli.history import export, maintenance, replay, search, status
from beanstalkd_py.cli.history.store_options import StoreOptions
from beanstalkd_py.cli.number_arguments import Number
from beanstalkd_py.cli.path_completion import folder_option

_INT32_MAX = 2**31 - 1


@click.group(cls=CommandGroup, context_settings=CONTEXT)
@folder_option(
    "--store",
    envvar="BEANSTALKD_HISTORY",
    type=click.Path(path_type=Path),
    show_envvar=True,
    help="Folder of the store.",
)
@click.option(
    "--index-slots",
    metavar="N",
    type=Number("a number of slots", minimum=1, maximum=_INT32_MAX),
    help="Slots of an index file, if detection fails.",
)
@click.option(
    "--index-entries",
    metavar="N",
    type=Number("a number of entries", minimum=2, maximum=_INT32_MAX),
    help="Entries of an index file, if detection fails.",
)
@click.pass_context
def history(
    ctx: click.Context, store: Path | None, index_slots: int | None, index_entries: int | None
) -> None:
    """Read a history store, or a store of Apache RocketMQ.

    All commands but expire only read the store: they change no byte and take no lock, so that a
    server can write it at the same time. TUBE is the name of a tube, or a topic of RocketMQ. TIME
    is when a message was stored: UTC, 2026-11-21T15:00:00, or a duration before now: 90s, 15m, 2h,
    3d.

    \b
    Examples:
      beanstalkd-py history --store /var/lib/history topics
      beanstalkd-py history --store /var/lib/history get 4711

    \b
    Exit statuses: 0  success
                   1  damage, no such message, or an error of the disk
                   2  usage error, such as a missing store or tube
    """
    ctx.obj = StoreOptions(store, index_slots, index_entries)


for command in (
    *(search.topics, search.ls, search.get),
    *(search.query, search.tail),
    *(maintenance.verify, export.export, maintenance.expire),
    *(replay.replay, status.status),
):
    history.add_command(command)
