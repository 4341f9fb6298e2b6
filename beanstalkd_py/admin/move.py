"""Moving jobs to another tube so that a kill neither loses a job nor lets two of it run.

For each batch, in this order, and each step answered before the next:

    1. put a hidden copy of each job into the target          (`hiding`)
    2. delete the originals
    3. where that was done, let the copy appear; where it was not, because someone has reserved or
       deleted the original meanwhile, delete the copy

A kill before 2 leaves originals as they were, and copies that nobody sees. A kill before 3 leaves
jobs that are only in the target, and nobody sees them. The next move into that target finds the
hidden copies first: it deletes those whose original is there and lets the others appear. What
cannot be told apart is an original that was moved and one that a worker has finished between the
kill and that next move: the job then runs again. Pausing the source excludes that.

Only one move into a target may be under way: each watches a tube named after the target, and its
number of watchers says whether there is another. It goes with its connection, however that ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from beanstalkd_py import errors
from beanstalkd_py.admin.connection import NOT_FOUND, Connection
from beanstalkd_py.admin.id_scan import scan
from beanstalkd_py.admin.job_record import Job
from beanstalkd_py.admin.job_scan import next_in_order
from beanstalkd_py.admin.jobs import appear, inserted_copies, without_delay
from beanstalkd_py.admin.staging import HiddenCopy, hidden_copies, hidden_delay_s
from beanstalkd_py.admin.statistics import BURIED, JobStats, parse, tube_stats

MOST_IN_A_BATCH = 64
BATCH_BYTES = 1 << 26
"""Bodies in memory at once, if the server lets jobs be that large."""
LOOKS_FOR_OTHERS = 10
PAUSE_S = 0.05
"""Between two looks."""


@dataclass
class Moved:
    """Numbers of jobs. `finished` and `withdrawn` are hidden copies of a move that was killed.

    `begun`: there may have been copies. `unsure`: hidden ones may not have been found.
    """

    moved: int = 0
    taken: int = 0
    finished: int = 0
    withdrawn: int = 0
    unsure: bool = False
    begun: bool = False

    def to_json(self) -> dict[str, int | bool]:
        """As `move --json` prints it."""
        return {
            "moved": self.moved,
            "taken_by_others": self.taken,
            "finished_of_killed_move": self.finished,
            "withdrawn_of_killed_move": self.withdrawn,
            "target_read_completely": not self.unsure,
        }


def move(
    connection: Connection,
    source: str,
    target: str,
    states: Sequence[str],
    limit: int | None = None,
    *,
    moved: Moved,
    held: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
) -> None:
    """Moves the jobs that are there now; `moved` has the numbers, also when an error ends it.

    Priorities, TTRs, remaining delays and bodies stay, and the order of each state. `limit` is for
    all states together. Each batch is moved and counted inside `held()`. Raises RefusedError.
    """
    _exclude_others(connection, target)
    _finish_what_was_killed(connection, target, moved, held)
    # Of two that began together, both may have seen one watcher. This is some answers later, when
    # everybody sees both, and before there are copies that the other could take for left behind.
    _exclude_others(connection, target)
    stats = tube_stats(connection, source)
    room = stats.count(states) if limit is None else limit
    most = _batch_size(connection)
    for state in states:
        # The number at the start bounds it: producers may be faster than we are.
        left = min(stats.count([state]), room - moved.moved)
        while left > 0:
            found = next_in_order(connection, source, state)
            if found is None:
                break
            while found and left > 0:
                batch, found = found[: min(most, left)], found[most:]
                with held():
                    left -= _move_batch(connection, source, target, batch, moved)


def _batch_size(connection: Connection) -> int:
    server = parse(connection.ask_one(b"stats").expect(b"OK").body)
    return max(1, min(MOST_IN_A_BATCH, BATCH_BYTES // max(1, int(server["max-job-size"]))))


def _move_batch(
    connection: Connection, source: str, target: str, batch: Sequence[JobStats], moved: Moved
) -> int:
    """Moves these jobs and returns how many it was; raises when a put was refused."""
    bodies = connection.ask([b"peek %d" % job.id for job in batch])
    jobs = [
        Job.of(stats, body.body)
        for stats, body in zip(batch, bodies, strict=True)
        if body is not NOT_FOUND
    ]
    moved.begun = True
    delays_s = [hidden_delay_s(job.id, job.state) for job in jobs]
    copies = inserted_copies(connection, target, jobs, delays_s)
    pairs = [(copy, job) for copy, job in zip(copies, jobs, strict=True) if isinstance(copy, int)]
    replies = connection.ask([b"delete %d" % job.id for _, job in pairs])
    gone = [pair for pair, reply in zip(pairs, replies, strict=True) if reply is not NOT_FOUND]
    kept = [pair for pair, reply in zip(pairs, replies, strict=True) if reply is NOT_FOUND]
    connection.ask([b"delete %d" % copy for copy, _ in kept])
    appear(connection, gone)
    moved.moved += len(gone)
    moved.taken += len(kept)
    for refusal in copies:
        if isinstance(refusal, errors.RefusedError):
            text = f"jobs moved from {source} to {target}: {moved.moved}; then: {refusal}"
            raise errors.RefusedError(refusal.word, text)
    return len(gone)


def _exclude_others(connection: Connection, target: str) -> None:
    mark = f"beanstalkd-py.move.{hashlib.sha256(target.encode()).hexdigest()[:16]}".encode()
    connection.ask_one(b"watch " + mark).expect(b"WATCHING")
    for _ in range(LOOKS_FOR_OTHERS):
        stats = connection.ask_one(b"stats-tube " + mark).expect(b"OK")
        if int(parse(stats.body)["current-watching"]) == 1:
            return
        # A connection that has just been closed is counted until the server reads that.
        time.sleep(PAUSE_S)
    text = f"another move into {target} is under way; wait until it has ended"
    raise errors.IncompleteError(text)


def _finish_what_was_killed(
    connection: Connection,
    target: str,
    moved: Moved,
    held: Callable[[], contextlib.AbstractContextManager[object]],
) -> None:
    used, stats = connection.ask([b"use " + target.encode(), b"stats-tube " + target.encode()])
    used.expect(b"USING")
    if parse(stats.expect(b"OK").body)["current-jobs-delayed"] == "0":
        return
    found = scan(connection, target)
    moved.unsure = not found.complete
    for hidden in hidden_copies(found.jobs.values()):
        with held():
            _finish(connection, hidden, moved)


def _finish(connection: Connection, hidden: HiddenCopy, moved: Moved) -> None:
    original, body, copy_body = connection.ask(
        [
            b"stats-job %d" % hidden.original,
            b"peek %d" % hidden.original,
            b"peek %d" % hidden.copy.id,
        ]
    )
    if original is NOT_FOUND:
        appear(connection, [(hidden.copy.id, _as_it_was(hidden))])
        moved.finished += 1
    elif _same(JobStats.read(original), hidden.copy) and body.body == copy_body.body:
        connection.ask_one(b"delete %d" % hidden.copy.id)
        moved.withdrawn += 1
    # Else it is somebody's job that is wanted in a century.


def _same(original: JobStats, copy: JobStats) -> bool:
    """A worker that has had the original since may have given it another priority."""
    return original.ttr_s == copy.ttr_s and original.id < copy.id


def _as_it_was(hidden: HiddenCopy) -> Job:
    """Its delay has gone with the original, so a delayed one is ready now."""
    job = without_delay(Job.of(hidden.copy, b""))
    return replace(job, state=BURIED) if hidden.state == BURIED else job
