"""What is done to single jobs: put, reserve, peek, delete, bury, kick."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import greenstalk

from beanstalkd_py import errors
from beanstalkd_py.admin.connection import NOT_FOUND, PUTS_AHEAD_BYTES, Connection, refused
from beanstalkd_py.admin.job_record import Job, put_command
from beanstalkd_py.admin.statistics import JobStats, job_stats

DELETE = "delete"
RELEASE = "release"
BURY = "bury"

_DONE = {DELETE: "deleted", RELEASE: "released", BURY: "buried"}


def put(
    connection: Connection, tube: str, body: bytes, *, pri: int, delay_s: int, ttr_s: int
) -> int:
    """Puts one job and returns its id. Raises RefusedError."""
    connection.client.use(tube)
    command = put_command(body, pri, delay_s, ttr_s)
    reply = connection.ask([command], PUTS_AHEAD_BYTES)[0]
    if reply.word == b"BURIED":
        job = int(reply.values[0])
        raise errors.RefusedError("BURIED", f"the server is out of memory: job {job} is buried")
    return int(reply.expect(b"INSERTED").values[0])


@contextlib.contextmanager
def reserved(connection: Connection, tubes: Sequence[str], wait_s: int | None) -> Iterator[Job]:
    """A job, reserved as long as the connection is open. Raises RefusedError (TIMED_OUT).

    If the block ends by an error, closing the connection makes the job ready again.
    """
    client = connection.client
    for tube in tubes:
        client.watch(tube)
    if "default" not in tubes:
        client.ignore("default")
    connection.be_patient(wait_s)
    try:
        taken = client.reserve(wait_s)
    except greenstalk.TimedOutError:
        raise refused("TIMED_OUT", f"tube {', '.join(tubes)}") from None
    connection.be_patient(0)
    stats = job_stats(connection, [taken.id])[0]
    if stats is None:
        raise _lost(taken.id)
    yield Job.of(stats, taken.body)


def settle(connection: Connection, job: Job, what: str) -> str:
    """Deletes, releases or buries a job that is reserved here; returns what was done, as a word.

    Priorities stay. Raises RefusedError if its TTR has run out meanwhile.
    """
    handle: greenstalk.Job[bytes] = greenstalk.Job(job.id, job.body)
    deeds: dict[str, Callable[[], None]] = {
        DELETE: lambda: connection.client.delete(handle),
        RELEASE: lambda: connection.client.release(handle, job.pri, 0),
        BURY: lambda: connection.client.bury(handle, job.pri),
    }
    try:
        deeds[what]()
    except greenstalk.NotFoundError:
        raise _lost(job.id, f", and was not {_DONE[what]}") from None
    return _DONE[what]


def _lost(job: int, consequence: str = "") -> errors.RefusedError:
    text = f"job {job} was shown, but its TTR has run out{consequence}; it is ready again"
    return errors.RefusedError("NOT_FOUND", f"{text}, or someone else has it (NOT_FOUND)")


def peek(connection: Connection, job: int) -> Job:
    """A job by its id. Raises RefusedError."""
    found, stats = connection.ask([b"peek %d" % job, b"stats-job %d" % job])
    if found is NOT_FOUND or stats is NOT_FOUND:
        raise refused("NOT_FOUND", f"job {job}")
    return Job.of(JobStats.read(stats), found.expect(b"FOUND").body)


def peek_first(connection: Connection, tube: str, state: str) -> Job:
    """The first job of a tube in a free state. Raises RefusedError."""
    client = connection.client
    client.use(tube)
    peeks = {
        "ready": client.peek_ready,
        "delayed": client.peek_delayed,
        "buried": client.peek_buried,
    }
    try:
        found = peeks[state]()
    except greenstalk.NotFoundError:
        text = f"tube {tube} has no {state} job (NOT_FOUND)"
        raise errors.RefusedError("NOT_FOUND", text) from None
    stats = job_stats(connection, [found.id])[0]
    if stats is None:
        raise refused("NOT_FOUND", f"job {found.id}, which has just gone")
    return Job.of(stats, found.body)


@dataclass(frozen=True)
class Outcome:
    """What became of the order to change one job. `word` is the server's."""

    id: int
    word: str


def delete(connection: Connection, ids: Sequence[int]) -> list[Outcome]:
    """Deletes jobs; one outcome each, DELETED or NOT_FOUND."""
    return _outcomes(connection, ids, [b"delete %d" % job for job in ids])


def kick(connection: Connection, ids: Sequence[int]) -> list[Outcome]:
    """Makes buried or delayed jobs ready; one outcome each, KICKED or NOT_FOUND."""
    return _outcomes(connection, ids, [b"kick-job %d" % job for job in ids])


def bury(connection: Connection, ids: Sequence[int]) -> list[Outcome]:
    """Buries jobs that nobody has reserved, with their priorities; BURIED or NOT_FOUND each."""
    outcomes = []
    for job in ids:
        # The protocol lets only its reserver bury a job.
        taken, stats = connection.ask([b"reserve-job %d" % job, b"stats-job %d" % job])
        if taken is NOT_FOUND or stats is NOT_FOUND:
            outcomes.append(Outcome(job, "NOT_FOUND"))
            continue
        taken.expect(b"RESERVED")
        pri = JobStats.read(stats).pri
        outcomes += _outcomes(connection, [job], [b"bury %d %d" % (job, pri)])
    return outcomes


def _outcomes(
    connection: Connection, ids: Sequence[int], commands: Sequence[bytes]
) -> list[Outcome]:
    replies = connection.ask(commands)
    return [
        Outcome(job, reply.word.decode("ascii", "replace"))
        for job, reply in zip(ids, replies, strict=True)
    ]


def kick_first(connection: Connection, tube: str, bound: int) -> int:
    """Makes up to `bound` buried jobs of a tube ready, delayed ones if none is buried."""
    connection.client.use(tube)
    return connection.client.kick(bound)


def inserted_copies(
    connection: Connection, tube: str, jobs: Sequence[Job], delays_s: Sequence[int]
) -> list[int | errors.RefusedError]:
    """Puts a copy of each job with its delay; ids in order, or why there is none."""
    commands = [job.put_command(delay_s) for job, delay_s in zip(jobs, delays_s, strict=True)]
    used, *replies = connection.ask([b"use " + tube.encode(), *commands], PUTS_AHEAD_BYTES)
    used.expect(b"USING")
    outcomes: list[int | errors.RefusedError] = []
    for reply in replies:
        if reply.word == b"INSERTED":
            outcomes.append(int(reply.values[0]))
            continue
        if reply.word == b"BURIED":
            # Out of memory, and yet it is there. Whoever tries again must not find two.
            connection.ask_one(b"delete " + reply.values[0])
        outcomes.append(refused(reply.word.decode("ascii", "replace"), f"put into {tube}"))
    return outcomes


def appear(connection: Connection, copies: Sequence[tuple[int, Job]]) -> None:
    """Brings hidden (delayed) copies, by their ids, into the states of their jobs."""
    commands: list[bytes] = []
    for copy, job in copies:
        if job.state == "buried":
            commands += [b"reserve-job %d" % copy, b"bury %d %d" % (copy, job.pri)]
        elif job.delay_s:
            commands += [
                b"reserve-job %d" % copy,
                b"release %d %d %d" % (copy, job.pri, job.delay_s),
            ]
        else:
            # No release: C beanstalkd does not write it down, and a restart would hide it again.
            commands.append(b"kick-job %d" % copy)
    # NOT_FOUND: someone has kicked or deleted it by its id, which is theirs to decide.
    for reply in connection.ask(commands):
        if reply.word not in (b"RESERVED", b"BURIED", b"RELEASED", b"KICKED", b"NOT_FOUND"):
            reason = refused(reply.word.decode("ascii", "replace"))
            ids = f"{copies[0][0]} to {copies[-1][0]}"
            raise errors.IncompleteError(
                f"some of the jobs {ids} stay delayed for decades: {reason};"
                " 'beanstalkd-py kick ID' makes one ready"
            )


def without_delay(job: Job) -> Job:
    """The job as it is once its delay has run out."""
    return replace(job, state="ready", delay_s=0)
