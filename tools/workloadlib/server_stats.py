"""Reads stats of jobs and tubes, and waits for events that have no reply."""

from __future__ import annotations

import time
from collections.abc import Sequence

from . import ContradictionError
from .connection import Connection
from .model import Job, Tube

LIMIT_S = 20.0
BATCH = 256

Stats = dict[str, str]


def parse_stats(body: bytes) -> Stats:
    """Parse a stats reply. C beanstalkd 1.12 does not quote values."""
    pairs = (line.partition(": ") for line in body.decode().splitlines())
    return {key: value.strip('"') for key, colon, value in pairs if colon}


def jobs_stats(connection: Connection, jobs: Sequence[Job]) -> list[Stats]:
    """Return the stats of each job, {} for a deleted one."""
    found: list[Stats] = []
    for start in range(0, len(jobs), BATCH):
        batch = jobs[start : start + BATCH]
        replies = connection.ask([b"stats-job %d" % job.id for job in batch])
        found += [parse_stats(reply.body) for reply in replies]
    return found


def tubes_stats(connection: Connection, tubes: Sequence[Tube]) -> list[Stats]:
    """Return the stats of tubes, pipelined because there may be 100,000."""
    found: list[Stats] = []
    for start in range(0, len(tubes), BATCH):
        commands = [b"stats-tube " + tube.wire for tube in tubes[start : start + BATCH]]
        replies = connection.expect(commands, [b"OK "] * len(commands))
        found += [parse_stats(reply.body) for reply in replies]
    return found


def await_jobs(
    connection: Connection,
    wanted: Sequence[tuple[Job, str, int]],
    holder: Connection | None = None,
) -> int:
    """Wait for states and numbers of timeouts; return the wall time of the last check.

    C beanstalkd may lose the timer of a connection with several jobs until that sends a command:
    `holder` does.
    """
    end = time.monotonic() + LIMIT_S
    waiting = list(wanted)
    while True:
        if holder is not None:
            holder.expect([b"list-tube-used"], [b"USING "])
        found = jobs_stats(connection, [job for job, _, _ in waiting])
        waiting = [
            want
            for want, stats in zip(waiting, found, strict=True)
            if (stats.get("state"), stats.get("timeouts")) != (want[1], str(want[2]))
        ]
        if not waiting:
            return time.time_ns()
        if time.monotonic() > end:
            job, state, timeouts = waiting[0]
            text = f"job {job.id} is not {state} with timeouts {timeouts} after {LIMIT_S:g} s"
            raise ContradictionError(text)
        time.sleep(0.005)
