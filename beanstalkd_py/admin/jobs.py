"""Operations on single jobs: put, reserve, peek, delete, bury, kick."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import greenstalk

from beanstalkd_py import errors
from beanstalkd_py.admin.connection import (
    MAX_PIPELINED_PUT_BYTES,
    NOT_FOUND,
    Connection,
    refusal_error,
)
from beanstalkd_py.admin.job_record import Job, put_command
from beanstalkd_py.admin.job_scan import first_job
from beanstalkd_py.admin.statistics import JobStats, job_stats

DELETE = "delete"
RELEASE = "release"
BURY = "bury"

_DONE = {DELETE: "deleted", RELEASE: "released", BURY: "buried"}


def put(
    connection: Connection, tube: str, body: bytes, *, pri: int, delay_s: int, ttr_s: int
) -> int:
    """Put one job and return its id. Raises RefusedError."""
    connection.client.use(tube)
    command = put_command(body, pri, delay_s, ttr_s)
    reply = connection.execute_all([command], MAX_PIPELINED_PUT_BYTES)[0]
    if reply.word == b"BURIED":
        job = int(reply.values[0])
        raise errors.RefusedError("BURIED", f"the server is out of memory: job {job} is buried")
    return int(reply.expect(b"INSERTED").values[0])


@contextlib.contextmanager
def reserved(connection: Connection, tubes: Sequence[str], wait_s: int | None) -> Iterator[Job]:
    """Reserve a job until the connection closes. Raises RefusedError (TIMED_OUT).

    If the block raises, closing the connection makes the job ready again.
    """
    client = connection.client
    for tube in tubes:
        client.watch(tube)
    if "default" not in tubes:
        client.ignore("default")
    connection.extend_timeout(wait_s)
    try:
        job = client.reserve(wait_s)
    except greenstalk.TimedOutError:
        raise refusal_error("TIMED_OUT", f"tube {', '.join(tubes)}") from None
    connection.extend_timeout(0)
    stats = job_stats(connection, [job.id])[0]
    if stats is None:
        raise _expired(job.id)
    yield Job.of(stats, job.body)


def finish(connection: Connection, job: Job, action: str) -> str:
    """Delete, release or bury a job that this connection has reserved; keep its priority.

    Returns "deleted", "released" or "buried". Raises RefusedError if the TTR has expired.
    """
    handle: greenstalk.Job[bytes] = greenstalk.Job(job.id, job.body)
    actions: dict[str, Callable[[], None]] = {
        DELETE: lambda: connection.client.delete(handle),
        RELEASE: lambda: connection.client.release(handle, job.pri, 0),
        BURY: lambda: connection.client.bury(handle, job.pri),
    }
    try:
        actions[action]()
    except greenstalk.NotFoundError:
        raise _expired(job.id, f", and was not {_DONE[action]}") from None
    return _DONE[action]


def _expired(job: int, consequence: str = "") -> errors.RefusedError:
    text = f"job {job} was shown, but its TTR expired{consequence}; it is ready again"
    return errors.RefusedError("NOT_FOUND", f"{text}, or reserved by another client (NOT_FOUND)")


def peek(connection: Connection, job: int) -> Job:
    """Return a job by its id. Raises RefusedError."""
    peeked, stats = connection.execute_all([b"peek %d" % job, b"stats-job %d" % job])
    if peeked is NOT_FOUND or stats is NOT_FOUND:
        raise refusal_error("NOT_FOUND", f"job {job}")
    return Job.of(JobStats.read(stats), peeked.expect(b"FOUND").body)


def with_bodies(connection: Connection, jobs: Sequence[JobStats]) -> list[Job]:
    """Return these jobs with their bodies, without those that were deleted meanwhile."""
    replies = connection.execute_all([b"peek %d" % job.id for job in jobs])
    pairs = zip(jobs, replies, strict=True)
    return [Job.of(job, reply.body) for job, reply in pairs if reply is not NOT_FOUND]


def peek_first(connection: Connection, tube: str, state: str) -> Job:
    """Return the first job of a tube in a free state. Raises RefusedError."""
    first = first_job(connection, tube, state)
    if first is None:
        raise errors.RefusedError("NOT_FOUND", f"tube {tube} has no {state} job (NOT_FOUND)")
    return peek(connection, first)


def delete(connection: Connection, ids: Sequence[int]) -> list[str]:
    """Delete jobs; return DELETED or NOT_FOUND for each."""
    return _words(connection, [b"delete %d" % job for job in ids])


def kick(connection: Connection, ids: Sequence[int]) -> list[str]:
    """Make buried or delayed jobs ready; return KICKED or NOT_FOUND for each."""
    return _words(connection, [b"kick-job %d" % job for job in ids])


def bury(connection: Connection, ids: Sequence[int]) -> list[str]:
    """Bury jobs that are not reserved, with their priorities; return BURIED or NOT_FOUND."""
    words = []
    for job in ids:
        # Only the client that has reserved a job can bury it.
        held, stats = connection.execute_all([b"reserve-job %d" % job, b"stats-job %d" % job])
        if held is NOT_FOUND or stats is NOT_FOUND:
            words.append("NOT_FOUND")
            continue
        held.expect(b"RESERVED")
        words += _words(connection, [b"bury %d %d" % (job, JobStats.read(stats).pri)])
    return words


def _words(connection: Connection, commands: Sequence[bytes]) -> list[str]:
    return [reply.word.decode("ascii", "replace") for reply in connection.execute_all(commands)]


def kick_first(connection: Connection, tube: str, bound: int) -> int:
    """Make up to `bound` buried jobs of a tube ready; delayed ones if none is buried."""
    connection.client.use(tube)
    return connection.client.kick(bound)


def put_copies(
    connection: Connection, tube: str, jobs: Sequence[Job], delays_s: Sequence[int]
) -> list[int | errors.RefusedError]:
    """Put a copy of each job with its delay; return their ids or errors, in order."""
    pairs = zip(jobs, delays_s, strict=True)
    commands = [put_command(job.body, job.pri, delay_s, job.ttr_s) for job, delay_s in pairs]
    used, *replies = connection.execute_all(
        [b"use " + tube.encode(), *commands], MAX_PIPELINED_PUT_BYTES
    )
    used.expect(b"USING")
    outcomes: list[int | errors.RefusedError] = []
    for reply in replies:
        if reply.word == b"INSERTED":
            outcomes.append(int(reply.values[0]))
            continue
        if reply.word == b"BURIED":
            # The job exists although the server is out of memory; a retry must not put it twice.
            connection.execute(b"delete " + reply.values[0])
        outcomes.append(refusal_error(reply.word.decode("ascii", "replace"), f"put into {tube}"))
    return outcomes


def reveal(connection: Connection, copies: Sequence[tuple[int, Job]]) -> None:
    """Move staged (delayed) copies, given by id, to the states of their jobs."""
    commands: list[bytes] = []
    for copy, job in copies:
        if job.state == "buried":
            commands += [b"reserve-job %d" % copy, b"bury %d %d" % (copy, job.pri)]
        elif job.delay_s:
            release = b"release %d %d %d" % (copy, job.pri, job.delay_s)
            commands += [b"reserve-job %d" % copy, release]
        else:
            # C beanstalkd does not log a release, so that the delay would return at a restart.
            commands.append(b"kick-job %d" % copy)
    # NOT_FOUND: another client has kicked or deleted the copy by its id.
    for reply in connection.execute_all(commands):
        if reply.word not in (b"RESERVED", b"BURIED", b"RELEASED", b"KICKED", b"NOT_FOUND"):
            reason = refusal_error(reply.word.decode("ascii", "replace"))
            ids = f"{copies[0][0]} to {copies[-1][0]}"
            raise errors.IncompleteError(
                f"some of the jobs {ids} are still delayed for decades: {reason};"
                ' run "beanstalkd-py kick ID"'
            )
