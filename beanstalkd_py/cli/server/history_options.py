"""Options of `serve` for the history of finished jobs: where it is, and how long and large.

Here is what they are on a command line; what they do is the server's affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.number_arguments import Bytes, Duration
from beanstalkd_py.cli.path_completion import complete_folder
from beanstalkd_py.server import options

if TYPE_CHECKING:
    from pathlib import Path

LEAST_BACKLOG = 1 << 20

_KEEPING = (
    click.option(
        "--history",
        metavar="DIR",
        shell_complete=complete_folder,
        help="Keep a history of finished jobs in this folder, in the format of Apache RocketMQ.",
    ),
    click.option(
        "--history-age",
        metavar="TIME",
        type=Duration(),
        default=0,
        help="Let jobs go from the history that ended so long ago; 12h, 30d.",
    ),
    click.option(
        "--history-size",
        metavar="BYTES",
        type=Bytes(),
        default=0,
        help="Let the oldest go when the log of all takes so much; 500M, 20G.",
    ),
    click.option(
        "--history-backlog",
        metavar="BYTES",
        type=Bytes(least=LEAST_BACKLOG),
        default=options.DEFAULT_HISTORY_BACKLOG,
        show_default=True,
        help="Leave out the oldest jobs when so much of the binlog waits to go to the history.",
    ),
    click.option(
        "--history-sizes",
        type=click.Choice(options.HISTORY_SIZES),
        default=options.SMALL_SIZES,
        show_default=True,
        help="What files a new history gets: small ones, or as large as a RocketMQ broker's.",
    ),
)


ARCHIVE_FIRST = click.option(
    "--history",
    metavar="DIR",
    shell_complete=complete_folder,
    help="Archive jobs that have ended there first, as a server with this option does.",
)


def rules_of(history: str | None, top: Path) -> options.HistoryOptions | None:
    """What an archiver is told of this folder when no server says more; None: nothing is archived.

    `top` is the binlog folder. HistoryFolderError; ToolUsageError: it has a history, and which one
    was not said.
    """
    from beanstalkd_py.binlog.layout import HISTORY_ID
    from beanstalkd_py.server.parent.folder_checks import check_history_folder

    if history is None:
        for mark in (*top.glob(HISTORY_ID), *top.glob(f"shard-*/{HISTORY_ID}")):
            raise errors.ToolUsageError(
                f"a history is kept of {top}; give --history DIR, so that jobs that have ended get"
                f" there first, or remove {mark} to leave them out"
            )
        return None
    check_history_folder(history, str(top))
    return options.ServeOptions(history=history).history_options()


def keeping(command: Any) -> Any:
    """Adds the options to a command."""
    for option in reversed(_KEEPING):
        command = option(command)
    return command


def kept(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of ServeOptions for what a context of such a command has. Raises UsageError."""
    if given["history"] is None:
        for name in ("history_age", "history_size"):
            if given[name]:
                raise click.UsageError(
                    f"option --{name.replace('_', '-')} needs --history DIR, too"
                )
    elif given["binlog_dir"] is None:
        raise click.UsageError("option --history needs a binlog, too: -b DIR")
    elif _is_same(given["history"], given["binlog_dir"]):
        raise click.UsageError("-b and --history are the same folder; give the history its own")
    return {
        "history": given["history"],
        "history_age_ns": given["history_age"],
        "history_size": given["history_size"],
        "history_backlog": given["history_backlog"],
        "history_sizes": given["history_sizes"],
    }


def _is_same(one: str, other: str) -> bool:
    from pathlib import Path

    return Path(one).resolve() == Path(other).resolve()
