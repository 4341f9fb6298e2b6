"""Move jobs to another tube so that a kill neither loses a job nor runs a job twice.

A server with the command `move` moves each job itself. It takes buried jobs as staged copies, which
are then buried. With another server, such as C beanstalkd, or a tube whose name is too long for the
command, each batch takes these steps, each acknowledged before the next:

    1. put a staged copy of each job into the target          (`staging`)
    2. delete the originals
    3. reveal the copy if its original was deleted; delete the copy if another client has reserved
       or deleted the original meanwhile

A kill before step 2 leaves the originals as they were, and invisible copies. A kill before step 3
leaves jobs that exist only as invisible copies in the target. The next move into that target
recovers first: it deletes staged copies whose original exists and reveals the others. The recovery
cannot distinguish a moved original from one that a client finished between the kill and that move;
such a job runs again. Pausing the source prevents this.

Only one move into a target may run at a time. Each watches a tube named after the target, whose
number of watchers reveals another move. The watch ends with the connection.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from beanstalkd_py import errors
from beanstalkd_py.admin import statistics
from beanstalkd_py.admin.connection import NOT_FOUND, Connection, refusal_error
from beanstalkd_py.admin.id_scan import scan
from beanstalkd_py.admin.job_record import Job
from beanstalkd_py.admin.job_scan import next_jobs
from beanstalkd_py.admin.jobs import put_copies, reveal, with_bodies
from beanstalkd_py.admin.rate_limiter import RateLimiter
from beanstalkd_py.admin.staging import StagedCopy, find_staged_copies, staging_delay_s
from beanstalkd_py.admin.statistics import JobStats

MAX_BATCH_JOBS = 64
MAX_BATCH_BYTES = 1 << 26
"""The maximum size of the bodies in memory, for the server's max-job-size."""
MAX_LINE_BYTES = 224
LOCK_ATTEMPTS = 10
LOCK_PAUSE_S = 0.05

Deferred = Callable[[], contextlib.AbstractContextManager[object]]


@dataclass
class MoveResult:
    """Numbers of jobs. `recovered` and `withdrawn` are staged copies of a killed move.

    If `started`, copies may exist. If `scan_incomplete`, staged copies may be left.
    """

    moved: int = 0
    taken: int = 0
    recovered: int = 0
    withdrawn: int = 0
    scan_incomplete: bool = False
    started: bool = False

    def to_json(self) -> dict[str, int | bool]:
        return {
            "moved": self.moved,
            "taken_by_others": self.taken,
            "finished_of_killed_move": self.recovered,
            "withdrawn_of_killed_move": self.withdrawn,
            "target_read_completely": not self.scan_incomplete,
        }


def move(
    connection: Connection,
    source: str,
    target: str,
    states: Sequence[str],
    limit: int | None = None,
    rate: float | None = None,
    *,
    result: MoveResult,
    deferred: Deferred = contextlib.nullcontext,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Move the jobs that exist now; `result` is valid even if an error ends the move.

    Keeps priorities, TTRs, remaining delays, bodies, and the order within each state. `limit`
    applies to all states together, `rate` is in jobs per second. Each batch is moved and counted
    inside `deferred()`. Returns between two batches if `stopped()`. Raises RefusedError.
    """
    _lock_target(connection, target)
    _recover(connection, target, result, deferred)
    # Two moves that start together may each count a single watcher. The second check counts both.
    # It runs before there are copies, which the other move would recover.
    _lock_target(connection, target)
    stats = statistics.tube_stats(connection, source)
    total = stats.count(states) if limit is None else limit
    most_jobs = MAX_BATCH_BYTES // max(1, statistics.max_job_size(connection))
    limiter = RateLimiter(rate, max(1, min(MAX_BATCH_JOBS, most_jobs)))
    move_batch = _move_on_server if _server_moves(connection, target) else _move_batch
    for state in states:
        # Bounded by the initial count, because clients may put jobs faster than they are moved.
        left = min(stats.count([state]), total - result.moved)
        while left > 0:
            jobs = next_jobs(connection, source, state)
            if jobs is None:
                break
            while jobs and left > 0:
                count = min(limiter.batch_jobs, left)
                batch, jobs = jobs[:count], jobs[count:]
                if stopped() or not limiter.wait(connection, stopped):
                    return
                limiter.record(len(batch), time.monotonic())
                with deferred():
                    left -= move_batch(connection, source, target, batch, result)


def _server_moves(connection: Connection, target: str) -> bool:
    """Whether the server has the command, and every line with this tube is short enough."""
    longest = b"move %d %b %d %d\r\n" % (2**64 - 1, target.encode(), 2**32 - 1, 2**32 - 1)
    if len(longest) > MAX_LINE_BYTES:
        return False
    return "move" in statistics.features_of(connection)


def _move_on_server(
    connection: Connection, source: str, target: str, batch: Sequence[JobStats], result: MoveResult
) -> int:
    """Let the server move these jobs; return how many it moved. Raises RefusedError."""
    result.started = True
    jobs = [Job.of(stats, b"") for stats in batch]
    lines = [
        b"move %d %b %d %d"
        % (
            job.id,
            target.encode(),
            job.pri,
            staging_delay_s(job.id, job.state) if job.state == statistics.BURIED else job.delay_s,
        )
        for job in jobs
    ]
    replies = connection.execute_all(lines)
    copies = [
        (int(reply.values[0]), job)
        for reply, job in zip(replies, jobs, strict=True)
        if reply.word == b"MOVED"
    ]
    reveal(connection, [(copy, job) for copy, job in copies if job.state == statistics.BURIED])
    result.moved += len(copies)
    result.taken += sum(reply is NOT_FOUND for reply in replies)
    for reply in replies:
        if reply.word != b"MOVED" and reply is not NOT_FOUND:
            refusal = refusal_error(reply.word.decode("ascii", "replace"), f"move to {target}")
            text = f"moved {result.moved} jobs from {source} to {target}, then failed: {refusal}"
            raise errors.RefusedError(refusal.word, text)
    return len(copies)


def _move_batch(
    connection: Connection, source: str, target: str, batch: Sequence[JobStats], result: MoveResult
) -> int:
    """Move these jobs and return how many were moved; raise if the server refused a put."""
    jobs = with_bodies(connection, batch)
    result.started = True
    delays_s = [staging_delay_s(job.id, job.state) for job in jobs]
    copies = put_copies(connection, target, jobs, delays_s)
    pairs = [(copy, job) for copy, job in zip(copies, jobs, strict=True) if isinstance(copy, int)]
    replies = connection.execute_all([b"delete %d" % job.id for _, job in pairs])
    outcomes = list(zip(pairs, replies, strict=True))
    moved = [pair for pair, reply in outcomes if reply is not NOT_FOUND]
    taken = [pair for pair, reply in outcomes if reply is NOT_FOUND]
    connection.execute_all([b"delete %d" % copy for copy, _ in taken])
    reveal(connection, moved)
    result.moved += len(moved)
    result.taken += len(taken)
    for refusal in copies:
        if isinstance(refusal, errors.RefusedError):
            text = f"moved {result.moved} jobs from {source} to {target}, then failed: {refusal}"
            raise errors.RefusedError(refusal.word, text)
    return len(moved)


def _lock_target(connection: Connection, target: str) -> None:
    lock = f"beanstalkd-py.move.{hashlib.sha256(target.encode()).hexdigest()[:16]}"
    connection.execute(b"watch " + lock.encode()).expect(b"WATCHING")
    for _ in range(LOCK_ATTEMPTS):
        stats = connection.execute(statistics.stats_tube_command(lock)).expect(b"OK")
        if int(statistics.parse(stats.body)["current-watching"]) == 1:
            return
        # The server counts a closed connection until it reads the end of its input.
        time.sleep(LOCK_PAUSE_S)
    text = f"another move into {target} is running; wait until it has finished"
    raise errors.IncompleteError(text)


def _recover(connection: Connection, target: str, result: MoveResult, deferred: Deferred) -> None:
    """Complete or withdraw the staged copies that a killed move has left in the target."""
    connection.client.use(target)
    if not statistics.tube_stats(connection, target).delayed:
        return
    scanned = scan(connection, target)
    result.scan_incomplete = not scanned.complete
    for staged in find_staged_copies(scanned.jobs.values()):
        with deferred():
            _recover_copy(connection, staged, result)


def _recover_copy(connection: Connection, staged: StagedCopy, result: MoveResult) -> None:
    original, body, copy_body = connection.execute_all(
        [
            b"stats-job %d" % staged.original,
            b"peek %d" % staged.original,
            b"peek %d" % staged.copy.id,
        ]
    )
    if original is NOT_FOUND:
        # The delay was lost with the original, so that a delayed job becomes ready.
        state = statistics.BURIED if staged.state == statistics.BURIED else statistics.READY
        job = replace(Job.of(staged.copy, b""), state=state, delay_s=0)
        reveal(connection, [(staged.copy.id, job)])
        result.recovered += 1
    elif _is_copy(JobStats.read(original), staged.copy) and body.body == copy_body.body:
        connection.execute(b"delete %d" % staged.copy.id)
        result.withdrawn += 1
    # Otherwise this is not a copy, but a job that a client has delayed for decades.


def _is_copy(original: JobStats, copy: JobStats) -> bool:
    # Priorities may differ, because a client may have released the original with another one.
    return original.ttr_s == copy.ttr_s and original.id < copy.id
