"""Options of `serve` for the history of finished jobs: its folder, retention and sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.argument_types import Bytes, Duration
from beanstalkd_py.cli.options import folder_option, in_order, option
from beanstalkd_py.server import options

if TYPE_CHECKING:
    from pathlib import Path

MIN_BACKLOG = 1 << 20

history_options = in_order(
    folder_option(
        "--history", "Store finished jobs in this folder, in the format of Apache RocketMQ."
    ),
    option(
        "--history-age history_age_ns",
        "Remove jobs from the history this long after their end; 12h, 30d.",
        Duration(),
        default=0,
    ),
    option(
        "--history-size",
        "Remove the oldest jobs when the log of the history has this size; 500M, 20G.",
        Bytes(),
        default=0,
    ),
    option(
        "--history-backlog",
        "Drop the oldest jobs when this much of the binlog waits for the archiver.",
        Bytes(MIN_BACKLOG),
        default=options.DEFAULT_HISTORY_BACKLOG,
    ),
    option(
        "--history-sizes",
        "File sizes of a new history: small, or those of a RocketMQ broker.",
        click.Choice(options.HISTORY_SIZES),
        default=options.SMALL_SIZES,
    ),
)


ARCHIVE_FIRST = folder_option(
    "--history", "First archive finished jobs there, as a server with this option does."
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


def check_history_options(given: Mapping[str, Any]) -> None:
    """Raise UsageError if history options of a context require or exclude others."""
    history, binlog_dir = given["history"], given["binlog_dir"]
    if history is None:
        for name, value in (("age", given["history_age_ns"]), ("size", given["history_size"])):
            if value:
                raise click.UsageError(f"option --history-{name} requires --history DIR")
    elif binlog_dir is None:
        raise click.UsageError("option --history requires a binlog; use -b DIR")
    elif _is_same(history, binlog_dir):
        raise click.UsageError("-b and --history are the same folder; use two folders")


def _is_same(one: str, other: str) -> bool:
    from pathlib import Path

    return Path(one).resolve() == Path(other).resolve()
