"""`beanstalkd-py cluster`: the servers of a replicated queue, and its jobs at an earlier time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.argument_types import TimeType
from beanstalkd_py.cli.command_group import CommandGroup
from beanstalkd_py.cli.connection_options import CONTEXT
from beanstalkd_py.cli.options import AS_JSON, file_option, folder_option, option
from beanstalkd_py.cli.output import notice, write_json, write_line
from beanstalkd_py.plural import counted

if TYPE_CHECKING:
    from beanstalkd_py.replication.cluster_status import ClusterStatus
    from beanstalkd_py.replication.log import Log

DEGRADED = 1

Result = TypeVar("Result")

_TARGET = click.argument("target", metavar="nats://HOST,.../NAME")
_CREDS = file_option("--creds", "Credentials for NATS, a file of nsc.")
_TLS_CA = file_option("--tls-ca", "Trust NATS servers with certificates of these CAs; PEM.")


@click.group(cls=CommandGroup, context_settings=CONTEXT)
def cluster() -> None:
    """Show, change and restore a replicated queue."""


@cluster.command()
@_TARGET
@_CREDS
@_TLS_CA
@AS_JSON
def status(target: str, creds: str | None, tls_ca: str | None, as_json: bool) -> int:
    """Show the primary and the standbys of a replicated queue.

    Reads the state from NATS, so it works from any machine. TARGET is the value of --replicate.

    \b
    Example:
      beanstalkd-py cluster status nats://nats-1,nats-2,nats-3/jobs

    Exit status 1 without a primary or without a running standby, 2 for a usage error or if NATS
    does not answer.
    """
    from beanstalkd_py.replication.cluster_status import read_status

    found = _with_log(read_status, target, creds, tls_ca)
    now_s = time.time()
    if as_json:
        write_json(asdict(found))
    else:
        _write(found, now_s)
    return 0 if found.primary and found.has_standby(now_s) else DEGRADED


@cluster.command()
@_TARGET
@_CREDS
@_TLS_CA
def failover(target: str, creds: str | None, tls_ca: str | None) -> None:
    """Let a standby take over from the primary.

    The primary stops in order, and its service manager starts it again as a standby. Reserved jobs
    stay reserved until their deadlines, and any client may delete, release, bury or touch them.

    \b
    Example:
      beanstalkd-py cluster failover nats://nats-1,nats-2,nats-3/jobs

    Exit status 2 without a primary or a standby, after 30 s, for a usage error or if NATS
    does not answer.
    """
    from beanstalkd_py.replication.cluster_status import fail_over

    found = _with_log(fail_over, target, creds, tls_ca)
    write_line(f"primary: {found.primary}")
    write_line(f"epoch: {found.epoch}")


@cluster.command()
@_TARGET
@click.argument("address", metavar="HOST:PORT")
@_CREDS
@_TLS_CA
def forget(target: str, address: str, creds: str | None, tls_ca: str | None) -> None:
    """Forget a server that is gone for good.

    Removes it from `cluster status`. HOST:PORT is its address there. A server that starts again is
    known again.

    \b
    Example:
      beanstalkd-py cluster forget nats://nats-1,nats-2,nats-3/jobs queue-3:11300

    Exit status 2 if the server is unknown or runs, for a usage error or if NATS does not answer.
    """
    from beanstalkd_py.replication.cluster_status import forget_server

    _with_log(partial(forget_server, address=address), target, creds, tls_ca)


@cluster.command()
@_TARGET
@folder_option("-b --binlog folder", "New binlog folder: missing or empty.", required=True)
@option("--at", "The time, as NATS has recorded it.", TimeType(), required=True)
@_CREDS
@_TLS_CA
def restore(target: str, folder: str, at: int, creds: str | None, tls_ca: str | None) -> None:
    """Write the binlog of an earlier time to a new folder.

    Reads the binlog from NATS, while servers use it. Start a server without --replicate on the
    folder; it has the jobs that the queue had at TIME. This is possible since the primary has last
    removed a file; for an earlier TIME the command shows since when. TIME is 2026-11-21T15:00:00
    (UTC), or a duration before now such as 15m.

    \b
    Example:
      beanstalkd-py cluster restore nats://nats-1/jobs -b /srv/before --at 15m

    Exit status 1 for an error of a disk or a damaged stream, 2 for a usage error, for a TIME that
    NATS does not have any more, or if NATS does not answer.
    """
    from beanstalkd_py.replication.restore import restore as restore_streams

    call = partial(restore_streams, folder=Path(folder), at_ns=at)
    workers = _with_log(call, target, creds, tls_ca)
    notice(f"restored {counted(workers, 'worker')} to {folder}")


def _with_log(
    call: Callable[[Log], Coroutine[Any, Any, Result]],
    target: str,
    creds: str | None,
    tls_ca: str | None,
) -> Result:
    """Connect to a replicated log, and return the result of `call`.

    Raises ToolUsageError, or BinlogToolError for an error of a disk or a damaged stream.
    """
    if find_spec("nats") is None:
        text = "cluster requires nats-py; run pip install 'beanstalkd_py[replication]'"
        raise errors.ToolUsageError(text)
    from beanstalkd_py.replication.log import Log, LogOptions
    from beanstalkd_py.replication.piece import PieceError
    from beanstalkd_py.replication.target import parse_target

    async def run() -> Result:
        log = await Log.connect(parse_target(target), LogOptions(creds, tls_ca))
        try:
            return await call(log)
        finally:
            await log.close()

    try:
        return asyncio.run(run())
    except PieceError as error:
        raise errors.BinlogToolError(str(error)) from error
    except OSError as error:
        path = f"{error.filename}: " if error.filename else ""
        raise errors.BinlogToolError(f"cannot write: {path}{error.strerror or error}") from error
    except (errors.ReplicationError, errors.UsageError) as error:
        raise errors.ToolUsageError(str(error)) from error


def _write(found: ClusterStatus, now_s: float) -> None:
    write_line(f"primary: {found.primary or 'none'}")
    write_line(f"epoch: {found.epoch}")
    if not found.is_complete:
        write_line("the streams do not have all jobs of the first server yet")
    for worker, ends in enumerate(found.streams):
        count = ends.last - ends.first + 1
        write_line(f"stream {worker}: messages: {count}, bytes: {ends.size}")
    for one in found.servers:
        age_s = now_s - one.time_s
        role = "primary" if one.is_primary else f"standby, {one.behind} messages behind"
        if not one.runs(now_s):
            role = f"does not run; last report {age_s:.0f} s ago"
        write_line(f"server {one.address}: {role}")
