"""Checks of a replicated queue: its log, the copies there, and its standbys."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from beanstalkd_py import errors
from beanstalkd_py.binlog.layout import REPLICA
from beanstalkd_py.doctor.finding import Finding, ok, problem, unknown, warning
from beanstalkd_py.plural import counted

if TYPE_CHECKING:
    from beanstalkd_py.replication.cluster_status import ClusterStatus

COPIES = 3
FAR_BEHIND = 10_000
"""Messages. Reports are up to 5 s old, and a stream gets at most about 1000 messages per second."""

_LOG = "replicated log"
_STANDBYS = "standbys"


@dataclass(frozen=True, slots=True)
class Queue:
    """The options of replication; `target` is --replicate."""

    target: str
    credentials: str | None
    ca: str | None
    copies: int


def examine_queue(queue: Queue) -> Iterator[Finding]:
    """Read the state of a queue from its log, and yield the findings."""
    try:
        status, copies = asyncio.run(_read(queue))
    except (errors.ReplicationError, errors.UsageError) as error:
        yield unusable(error)
        return
    yield check_log(status, copies)
    yield check_standbys(status, queue.target, time.time())


async def _read(queue: Queue) -> tuple[ClusterStatus, int]:
    from beanstalkd_py.replication.cluster_status import read_status
    from beanstalkd_py.replication.log import Log, LogOptions
    from beanstalkd_py.replication.target import parse_target

    options = LogOptions(queue.credentials, queue.ca, queue.copies)
    log = await Log.connect(parse_target(queue.target), options)
    try:
        status = await read_status(log)
        return status, await log.check_settings(len(status.streams))
    finally:
        await log.close()


def unusable(error: errors.BeanstalkdError) -> Finding:
    found, _, advice = str(error).partition("; ")
    return problem(_LOG, found, advice or "start NATS and a server, or correct --replicate")


def unknown_queue(top: Path) -> Finding:
    """Return the finding for a replica whose options are unknown."""
    return unknown(_LOG, f"{top} is a replica ({REPLICA})", "use --config to check its log")


def check_log(status: ClusterStatus, copies: int) -> Finding:
    """`copies` is the smallest number of NATS servers that have a stream."""
    if not status.primary:
        advice = "see the logs of all servers: they need NATS and a complete folder"
        return problem(_LOG, "no server is the primary", advice)
    found = f"primary {status.primary}, epoch {status.epoch}, {counted(copies, 'copy')}"
    if not status.is_complete:
        found += ", without all jobs of the first server yet"
        return warning(_LOG, found, "keep the first server running until its folder is stored")
    if copies < COPIES:
        found += ": no NATS server may fail"
        advice = f"use --replicate-copies {COPIES}, and nats stream edit --replicas {COPIES}"
        return warning(_LOG, found, advice)
    return ok(_LOG, found)


def check_standbys(status: ClusterStatus, target: str, now_s: float) -> Finding:
    """Check that a standby runs, follows the primary, and that all servers have reported."""
    standbys = [one for one in status.servers if not one.is_primary]
    running = [one for one in standbys if one.runs(now_s)]
    if not running:
        advice = "start a server with the same --replicate on another machine"
        return warning(_STANDBYS, "none is running: no server can take over", advice)
    last = max(running, key=lambda one: one.behind)
    if last.behind > FAR_BEHIND:
        found = f"{last.address} is {counted(last.behind, 'message')} behind"
        return warning(_STANDBYS, found, "wait, or see its log: a new standby copies everything")
    gone = next((one for one in standbys if not one.runs(now_s)), None)
    if gone is not None:
        found = f"{gone.address} has not reported for {now_s - gone.time_s:.0f} s"
        advice = f"start it, or run beanstalkd-py cluster forget {target} {gone.address}"
        return warning(_STANDBYS, found, advice)
    text = f"{counted(len(running), 'standby')}, at most {counted(last.behind, 'message')} behind"
    return ok(_STANDBYS, text)
