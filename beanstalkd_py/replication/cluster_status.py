"""The state of a replicated queue, read from its log. Needs no server."""

from __future__ import annotations

from dataclasses import dataclass, replace

from beanstalkd_py import errors
from beanstalkd_py.replication.lease import Holder
from beanstalkd_py.replication.log import CONFIGURATION, LEASE, SERVER_PREFIX, Log, StreamEnds
from beanstalkd_py.replication.node import Configuration, ServerReport


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """`behind` is the number of messages that the server lacked when it reported, at `time_s`."""

    address: str
    is_primary: bool
    behind: int
    time_s: float


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """`primary` is an address, empty if no server has the lease. `streams` are those of workers.

    `is_complete` is false until the streams have everything that the first server had.
    """

    primary: str
    epoch: int
    is_complete: bool
    streams: list[StreamEnds]
    servers: list[ServerStatus]


async def read_status(log: Log) -> ClusterStatus:
    """Raises ReplicationError if the queue does not exist, LogUnavailableError."""
    record = await log.get(CONFIGURATION)
    if record is None:
        raise errors.ReplicationError("no server has begun this replicated queue yet")
    configuration = Configuration(**record.value)
    lease = await log.get(LEASE)
    holder = Holder("", "")
    if lease is not None:
        holder = Holder(**lease.value)
        holder = replace(holder, epoch=holder.epoch or lease.revision)
    streams = [await log.ends(worker) for worker in range(configuration.workers)]
    reports = []
    for key in await log.keys(SERVER_PREFIX):
        found = await log.get(key)
        if found is not None:
            reports.append(ServerReport(**found.value))
    servers = [_status_of(report, holder, streams) for report in reports]
    return ClusterStatus(holder.address, holder.epoch, configuration.is_complete, streams, servers)


def _status_of(report: ServerReport, holder: Holder, streams: list[StreamEnds]) -> ServerStatus:
    is_primary = report.address == holder.address
    lacks = [
        max(0, ends.last - sequence)
        for ends, sequence in zip(streams, report.sequences, strict=False)
    ]
    behind = 0 if is_primary else sum(lacks)
    return ServerStatus(report.address, is_primary, behind, report.time_s)
