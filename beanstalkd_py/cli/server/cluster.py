"""`beanstalkd-py cluster`: the state of a replicated queue."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.command_group import CommandGroup
from beanstalkd_py.cli.connection_options import CONTEXT
from beanstalkd_py.cli.options import AS_JSON, file_option
from beanstalkd_py.cli.output import write_json, write_line

if TYPE_CHECKING:
    from beanstalkd_py.replication.cluster_status import ClusterStatus

DEGRADED = 1
STALE_S = 15.0
"""A server that has not reported this long does not run."""


@click.group(cls=CommandGroup, context_settings=CONTEXT)
def cluster() -> None:
    """Show the servers of a replicated queue."""


@cluster.command()
@click.argument("target", metavar="nats://HOST,.../NAME")
@file_option("--creds", "Credentials for NATS, a file of nsc.")
@file_option("--tls-ca", "Trust NATS servers with certificates of these CAs; PEM.")
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
    if find_spec("nats") is None:
        text = "cluster requires nats-py; run pip install 'beanstalkd_py[replication]'"
        raise errors.ToolUsageError(text)
    found = asyncio.run(_read(target, creds, tls_ca))
    now_s = time.time()
    running = [one for one in found.servers if now_s - one.time_s < STALE_S]
    if as_json:
        write_json(asdict(found))
    else:
        _write(found, now_s)
    has_standby = any(not one.is_primary for one in running)
    return 0 if found.primary and has_standby else DEGRADED


async def _read(target: str, creds: str | None, tls_ca: str | None) -> ClusterStatus:
    from beanstalkd_py.replication.cluster_status import read_status
    from beanstalkd_py.replication.log import Log, LogOptions
    from beanstalkd_py.replication.target import parse_target

    try:
        log = await Log.connect(parse_target(target), LogOptions(creds, tls_ca))
        try:
            return await read_status(log)
        finally:
            await log.close()
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
        if age_s >= STALE_S:
            role = f"does not run; last report {age_s:.0f} s ago"
        write_line(f"server {one.address}: {role}")
