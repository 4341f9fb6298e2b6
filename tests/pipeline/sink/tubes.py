"""Jobs in the tubes of a server."""

from __future__ import annotations

from typing import NamedTuple

from servers import Server

from beanstalkd_py.admin.address import parse_address
from beanstalkd_py.admin.connection import NOT_FOUND, connect
from beanstalkd_py.admin.statistics import parse

TIMEOUT_S = 20.0


class Job(NamedTuple):
    tube: str
    priority: int
    delay: int
    ttr: int
    body: bytes


def address(server: Server) -> str:
    return f"127.0.0.1:{server.port}"


def total_jobs(server: Server) -> int:
    return int(stats(server)["total-jobs"])


def stats(server: Server) -> dict[str, str]:
    with connect(parse_address(address(server)), TIMEOUT_S) as connection:
        return parse(connection.execute(b"stats").expect(b"OK").body)


def tube(server: Server, name: str) -> dict[str, str]:
    with connect(parse_address(address(server)), TIMEOUT_S) as connection:
        return parse(connection.execute(b"stats-tube " + name.encode()).expect(b"OK").body)


def jobs(server: Server, workers: int = 1) -> list[Job]:
    """Return all jobs by id."""
    # Workers number their jobs in turn.
    last = workers * (total_jobs(server) + 1)
    found = []
    with connect(parse_address(address(server)), TIMEOUT_S) as connection:
        for first in range(0, last + 1, 256):
            ids = range(first, first + 256)
            replies = connection.execute_all([b"stats-job %d" % job for job in ids])
            there = [
                (job, parse(reply.body))
                for job, reply in zip(ids, replies, strict=True)
                if reply is not NOT_FOUND
            ]
            bodies = connection.execute_all([b"peek %d" % job for job, _ in there])
            found += [
                Job(one["tube"], int(one["pri"]), int(one["delay"]), int(one["ttr"]), reply.body)
                for (_, one), reply in zip(there, bodies, strict=True)
            ]
    return found
