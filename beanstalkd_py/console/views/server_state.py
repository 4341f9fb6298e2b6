"""Connections, settings, binlog, replication and checks of one server."""

from __future__ import annotations

import fnmatch
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beanstalkd_py import errors
from beanstalkd_py.admin.connection import NOT_FOUND
from beanstalkd_py.admin.local_control import ConnectionRow
from beanstalkd_py.admin.statistics import (
    Statistics,
    no_tube,
    parse,
    server_stats,
    stats_tube_command,
)
from beanstalkd_py.console.target import Target
from beanstalkd_py.control import tube_stats

MOST_CONNECTIONS = 1000

Row = Mapping[str, Any]
"""A row of the control socket, as docs/operations/administration.md describes it."""


@dataclass(frozen=True, slots=True)
class TubeView:
    stats: Statistics
    policy: Row | None
    oldest_ready_s: float | None


def one_tube(target: Target, tube: str) -> TubeView:
    """Raises RefusedError if the tube does not exist."""
    with target.connection() as connection:
        reply = connection.execute(stats_tube_command(tube))
    if reply is NOT_FOUND:
        raise no_tube(tube)
    policy = next((one for one in policies(target) if _matches(tube, one)), None)
    return TubeView(parse(reply.expect(b"OK").body), policy, _oldest_ready_s(target, tube))


def _matches(tube: str, policy: Row) -> bool:
    return fnmatch.fnmatchcase(tube, str(policy["tube"]))


def _oldest_ready_s(target: Target, tube: str) -> float | None:
    try:
        with target.control_client() as control:
            for part in control.parts("tubes"):
                for row in tube_stats.rows(part):
                    if row["name"] == tube:
                        return float(row["oldest-ready-age-s"] or 0) if row["ready"] else None
    except errors.ControlError:
        pass
    return None


@dataclass(frozen=True, slots=True)
class ConnectionView:
    """A connection. Long `watched` and `reserved` are cut off; `watching` and `holds` count all.

    `waits_s` is how long its reserve waits at most, None without a limit.
    """

    id: str
    address: str
    used: str
    watched: Sequence[str]
    watching: int
    waiting: bool
    waits_s: float | None
    reserved: Sequence[int]
    holds: int
    worker: int
    unread_bytes: int
    unsent_bytes: int

    @classmethod
    def of(cls, row: ConnectionRow) -> ConnectionView:
        return cls(
            id=f"{row['worker']}-{row['from']}",
            address=row["from"],
            used=row["use"],
            watched=row["watch"],
            watching=row["watching"],
            waiting=row["waits"],
            waits_s=row["waits-s"],
            reserved=row["jobs"],
            holds=row["holds"],
            worker=row["worker"],
            unread_bytes=row["unread-bytes"],
            unsent_bytes=row["unsent-bytes"],
        )


def connections(target: Target, tube: str, limit: int) -> list[ConnectionView]:
    """Return the connections of a tube, or all: those that use it, watch it, or may watch it.

    A row has only the first tubes of a connection that watches many.
    """
    found: list[ConnectionRow] = []
    with target.control_client() as control:
        for row in control.parts("conns"):
            is_cut = len(row["watch"]) < row["watching"]
            if not tube or tube == row["use"] or tube in row["watch"] or is_cut:
                found.append(row)
    # Those that hold jobs or wait first, because operators look for them.
    found.sort(key=lambda row: (-row["holds"], not row["waits"], row["from"]))
    return [ConnectionView.of(row) for row in found[: min(limit, MOST_CONNECTIONS)]]


def holder(target: Target, job: int) -> ConnectionView | None:
    """Return the connection that has reserved a job, if a control socket reports it.

    A row has only the first jobs of a connection that holds many. If it can be only one, that one:
    nobody holds jobs that were reserved before a planned failover.
    """
    try:
        rows = connections(target, "", MOST_CONNECTIONS)
    except errors.ControlError:
        return None
    found = [row for row in rows if job in row.reserved]
    cut = [row for row in rows if len(row.reserved) < row.holds]
    if found or len(cut) != 1:
        return next(iter(found), None)
    with target.connection() as connection:
        reserved = int(server_stats(connection)["current-jobs-reserved"])
    return cut[0] if sum(row.holds for row in rows) == reserved else None


def policies(target: Target) -> list[Row]:
    """Return the policies in the order in which the server tests them; [] if it cannot tell."""
    try:
        with target.control_client() as control:
            return [_policy(row) for row in control.parts("policies")]
    except errors.ControlError:
        return []


def _policy(row: Row) -> Row:
    settings = {name: value for name, value in row.items() if name != "pattern"}
    return {"tube": row["pattern"], **settings}


def schedules(target: Target) -> list[Row]:
    """Raises ControlError."""
    with target.control_client() as control:
        return list(control.parts("schedules"))


@dataclass(frozen=True, slots=True)
class DiskView:
    """Bytes of the file system of the binlog folder."""

    size: int
    free: int

    @classmethod
    def of(cls, folder: Path | None) -> DiskView | None:
        if folder is None:
            return None
        usage = shutil.disk_usage(folder)
        return cls(usage.total, usage.free)


@dataclass(frozen=True, slots=True)
class BinlogView:
    """`binlog` has the statistics of `stats` about it; `history` is None without an archiver."""

    workers: Sequence[Row] | None
    binlog: Statistics
    disk: DiskView | None
    history: Row | None


def binlog(target: Target) -> BinlogView:
    with target.connection() as connection:
        stats = server_stats(connection)
    about = {name: value for name, value in stats.items() if name.startswith("binlog-")}
    workers: list[Row] | None = None
    history: Row | None = None
    try:
        with target.control_client() as control:
            workers = list(control.parts("workers"))
            history = control.ask("history")
    except errors.ControlError:
        pass
    return BinlogView(workers, about, DiskView.of(target.binlog), history)


def replication(target: Target) -> Row | None:
    """Return the status of the replicator of a primary, None without replication or control."""
    try:
        with target.control_client() as control:
            status: Row | None = control.ask("replication")
            return status
    except errors.ControlError:
        return None
