"""Options of `serve` for the history of finished jobs: its folder, retention and sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.number_arguments import Bytes, Duration
from beanstalkd_py.cli.path_completion import folder_option
from beanstalkd_py.server import options

if TYPE_CHECKING:
    from pathlib import Path

MIN_BACKLOG = 1 << 20

_OPTIONS = (
    folder_option(
        "--history", help="Store finished jobs in this folder, in the format of Apache RocketMQ."
    ),
    click.option(
        "--history-age",
        metavar="TIME",
        type=Duration(),
        default=0,
        help="Remove jobs from the history this long after their end; 12h, 30d.",
    ),
    click.option(
        "--history-size",
        metavar="BYTES",
        type=Bytes(),
        default=0,
        help="Remove the oldest jobs when the log of the history has this size; 500M, 20G.",
    ),
    click.option(
        "--history-backlog",
        metavar="BYTES",
        type=Bytes(MIN_BACKLOG),
        default=options.DEFAULT_HISTORY_BACKLOG,
        show_default=True,
        help="Drop the oldest jobs when this much of the binlog waits for the archiver.",
    ),
    click.option(
        "--history-sizes",
        type=click.Choice(options.HISTORY_SIZES),
        default=options.SMALL_SIZES,
        show_default=True,
        help="File sizes of a new history: small, or those of a RocketMQ broker.",
    ),
)


ARCHIVE_FIRST = folder_option(
    "--history", help="First archive finished jobs there, as a server with this option does."
)


def archive_rules(history: str | None, top: Path) -> options.HistoryOptions | None:
    """Return the archiver's settings for binlog folder `top`; None without a history.

    Raises HistoryFolderError. Raises ToolUsageError if the folder has a history and `history` is
    None.
    """
    from beanstalkd_py.binlog.layout import HISTORY_ID
    from beanstalkd_py.server.parent.folder_checks import check_history_folder

    if history is None:
        for mark in (*top.glob(HISTORY_ID), *top.glob(f"shard-*/{HISTORY_ID}")):
            raise errors.ToolUsageError(
                f"{top} has a history; use --history DIR to archive finished jobs first,"
                f" or remove {mark} to drop them"
            )
        return None
    check_history_folder(history, str(top))
    return options.ServeOptions(history=history).history_options()


def add_history_options(command: Any) -> Any:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def with_history(base: options.ServeOptions, given: Mapping[str, Any]) -> options.ServeOptions:
    """Return `base` with the history options of a context. Raises UsageError."""
    history = given["history"]
    if history is None:
        for name in ("history_age", "history_size"):
            if given[name]:
                raise click.UsageError(f"option --{name.replace('_', '-')} requires --history DIR")
    elif base.binlog_dir is None:
        raise click.UsageError("option --history requires a binlog; use -b DIR")
    elif _is_same(history, base.binlog_dir):
        raise click.UsageError("-b and --history are the same folder; use two folders")
    return replace(
        base,
        history=history,
        history_age_ns=given["history_age"],
        history_size=given["history_size"],
        history_backlog=given["history_backlog"],
        history_sizes=given["history_sizes"],
    )


def _is_same(one: str, other: str) -> bool:
    from pathlib import Path

    return Path(one).resolve() == Path(other).resolve()
