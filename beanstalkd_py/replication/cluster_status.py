"""The state of a replicated queue, read from its log. Needs no server."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field, replace

from beanstalkd_py import errors
from beanstalkd_py.core.shared_memory import BinlogPosition
from beanstalkd_py.replication.lease import Holder
from beanstalkd_py.replication.log import (
    CONFIGURATION,
    FAILOVER,
    LEASE,
    SERVER_PREFIX,
    Log,
    LogUnavailableError,
    StreamEnds,
    WrongSequenceError,
)
from beanstalkd_py.replication.membership import Configuration
from beanstalkd_py.replication.node import ServerReport, key_of

POLL_S = 0.05
FAILOVER_S = 30.0
STALE_S = 15.0
"""A server that has not reported this long does not run."""


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """`behind` is the number of stored messages that are not in its report of `time_s`.

    `sequences` are the last messages of the streams that it had, and `positions` their ends. It had
    all messages at `complete_s`.
    """

    address: str
    is_primary: bool
    behind: int
    time_s: float
    complete_s: float = 0.0
    has_history: bool = False
    sequences: list[int] = field(default_factory=list)
    positions: list[BinlogPosition] = field(default_factory=list)

    def runs(self, now_s: float) -> bool:
        return now_s - self.time_s < STALE_S


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

    def has_standby(self, now_s: float) -> bool:
        return any(one.runs(now_s) and not one.is_primary for one in self.servers)


async def read_configuration(log: Log) -> Configuration:
    """Raises ReplicationError if the queue does not exist, LogUnavailableError."""
    record = await log.get(CONFIGURATION)
    if record is None:
        raise errors.ReplicationError("no server has begun this replicated queue yet")
    return record.decode(Configuration)


async def read_status(log: Log) -> ClusterStatus:
    """Raises ReplicationError if the queue does not exist, LogUnavailableError."""
    configuration = await read_configuration(log)
    lease = await log.get(LEASE)
    holder = Holder("", "")
    if lease is not None:
        holder = lease.decode(Holder)
        holder = replace(holder, epoch=holder.epoch or lease.revision)
    streams = [await log.ends(worker) for worker in range(configuration.workers)]
    servers = [_status_of(report, holder, streams) for report, _ in await _read_reports(log)]
    return ClusterStatus(holder.address, holder.epoch, configuration.is_complete, streams, servers)


async def forget_server(log: Log, address: str) -> None:
    """Remove the report of a server that is gone for good.

    Raises ReplicationError if there is none or if the server runs, LogUnavailableError.
    """
    reports = {report.address: (report, revision) for report, revision in await _read_reports(log)}
    if address not in reports:
        known = ", ".join(sorted(reports)) or "none"
        raise errors.ReplicationError(f"no server {address} has reported; known servers: {known}")
    report, revision = reports[address]
    age_s = time.time() - report.time_s
    if age_s < STALE_S:
        text = f"server {address} runs, because it reported {age_s:.0f} s ago; stop it first"
        raise errors.ReplicationError(text)
    try:
        await log.delete(key_of(address), revision)
    except WrongSequenceError as error:
        text = f"server {address} runs, because it reported right now; stop it first"
        raise errors.ReplicationError(text) from error


async def fail_over(log: Log) -> ClusterStatus:
    """Let the primary hand over to a standby; return the status when the lease is taken again.

    Raises ReplicationError without a primary or a standby, and if nobody takes it in time.
    """
    before = await read_status(log)
    if not before.has_standby(time.time()):
        raise errors.ReplicationError("no standby runs")
    if not before.primary or not await log.ask(FAILOVER):
        raise errors.ReplicationError("no server is the primary")
    end_mono = time.monotonic() + FAILOVER_S
    while time.monotonic() < end_mono:
        with contextlib.suppress(LogUnavailableError):
            found = await read_status(log)
            if found.primary and found.epoch > before.epoch:
                return found
        await asyncio.sleep(POLL_S)
    raise errors.ReplicationError(
        f"no other server is the primary after {FAILOVER_S:.0f} s; see cluster status"
    )


async def _read_reports(log: Log) -> list[tuple[ServerReport, int]]:
    """Return the reports of all servers, each with its revision."""
    reports = []
    for key in await log.keys(SERVER_PREFIX):
        found = await log.get(key)
        if found is not None:
            reports.append((found.decode(ServerReport), found.revision))
    return reports


def _status_of(report: ServerReport, holder: Holder, streams: list[StreamEnds]) -> ServerStatus:
    is_primary = report.address == holder.address
    lacks = [
        max(0, ends.last - sequence)
        for ends, sequence in zip(streams, report.sequences, strict=False)
    ]
    behind = 0 if is_primary else sum(lacks)
    return ServerStatus(
        report.address,
        is_primary,
        behind,
        report.time_s,
        report.complete_s,
        report.has_history,
        list(report.sequences),
        [BinlogPosition(*one) for one in report.positions],
    )
