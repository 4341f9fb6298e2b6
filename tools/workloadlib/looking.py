"""Looking at jobs, and waiting until the server has done what no reply tells of."""

from __future__ import annotations

import time
from collections.abc import Sequence

from . import ContradictionError
from .connection import Connection
from .world import Job, Tube

LIMIT_S = 20.0
BATCH = 256

Facts = dict[str, str]


def facts_of(body: bytes) -> Facts:
    """A reply to stats, stats-tube or stats-job; C beanstalkd 1.12 has no quotes."""
    pairs = (line.partition(": ") for line in body.decode().splitlines())
    return {key: value.strip('"') for key, colon, value in pairs if colon}


def jobs_facts(connection: Connection, jobs: Sequence[Job]) -> tuple[int, list[Facts]]:
    """stats-job of each, {} for one that is not there; and when the first was asked."""
    found: list[Facts] = []
    first_ns = time.time_ns()
    for start in range(0, len(jobs), BATCH):
        batch = jobs[start : start + BATCH]
        _, replies = connection.ask([b"stats-job %d" % job.id for job in batch])
        found += [facts_of(reply.body) for reply in replies]
    return first_ns, found


def tubes_facts(connection: Connection, tubes: Sequence[Tube]) -> list[Facts]:
    """stats-tube of each; one by one, a hundred thousand tubes take most of a minute."""
    found: list[Facts] = []
    for start in range(0, len(tubes), BATCH):
        commands = [b"stats-tube " + tube.wire for tube in tubes[start : start + BATCH]]
        _, replies = connection.expect(commands, [b"OK "] * len(commands))
        found += [facts_of(reply.body) for reply in replies]
    return found


def await_jobs(
    connection: Connection,
    wanted: Sequence[tuple[Job, str, int]],
    holder: Connection | None = None,
) -> int:
    """Until all have a state and a number of timeouts; when that was seen, wall nanoseconds.

    C beanstalkd can lose the timer of a connection that holds several jobs, until that says
    something: `holder` does.
    """
    end = time.monotonic() + LIMIT_S
    waiting = list(wanted)
    while True:
        if holder is not None:
            holder.expect([b"list-tube-used"], [b"USING "])
        _, found = jobs_facts(connection, [job for job, _, _ in waiting])
        waiting = [
            want
            for want, facts in zip(waiting, found, strict=True)
            if (facts.get("state"), facts.get("timeouts")) != (want[1], str(want[2]))
        ]
        if not waiting:
            return time.time_ns()
        if time.monotonic() > end:
            job, state, timeouts = waiting[0]
            text = f"job {job.id} is not {state} with timeouts {timeouts} after {LIMIT_S:g} s"
            raise ContradictionError(text)
        time.sleep(0.005)
