"""`beanstalkd-py history`: the group of commands and the options of the store."""

from __future__ import annotations

from pathlib import Path

import click

from beanstalkd_py.cli.command_group import CommandGroup
from beanstalkd_py.cli.connection_options import CONTEXT
from beanstalkd_py.cli.history import export, maintenance, replay, search
from beanstalkd_py.cli.history.store_options import StoreOptions
from beanstalkd_py.cli.options import count_option, folder_option

_INT32_MAX = 2**31 - 1


@click.group(cls=CommandGroup, context_settings=CONTEXT)
@folder_option(
    "--store",
    "Folder of the store.",
    click.Path(path_type=Path),
    envvar="BEANSTALKD_HISTORY",
    show_envvar=True,
)
@count_option(
    "--index-slots", "Slots of an index file, if detection fails.", "slots", 1, _INT32_MAX
)
@count_option(
    "--index-entries", "Entries of an index file, if detection fails.", "entries", 2, _INT32_MAX
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
    *(replay.replay, maintenance.status),
):
    history.add_command(command)
