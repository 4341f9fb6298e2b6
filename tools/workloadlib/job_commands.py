"""Commands about single jobs, and the events that their replies acknowledge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .connection import Connection, Reply
from .model import Job, Model

Note = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class JobCommand:
    """`note` gets the times and the connection once the reply begins with `word`."""

    command: bytes
    word: bytes
    note: Note


def delete(model: Model, job: Job) -> JobCommand:
    return JobCommand(
        b"delete %d" % job.id, b"DELETED", lambda sent, at, conn: model.delete(job, sent, at, conn)
    )


def touch(model: Model, job: Job) -> JobCommand:
    return JobCommand(
        b"touch %d" % job.id, b"TOUCHED", lambda sent, at, conn: model.touch(job, sent, at, conn)
    )


def bury(model: Model, job: Job, pri: int) -> JobCommand:
    return JobCommand(
        b"bury %d %d" % (job.id, pri),
        b"BURIED",
        lambda sent, at, conn: model.bury(job, pri, sent, at, conn),
    )


def release(model: Model, job: Job, pri: int, delay: int) -> JobCommand:
    return JobCommand(
        b"release %d %d %d" % (job.id, pri, delay),
        b"RELEASED",
        lambda sent, at, conn: model.release(job, pri, delay, sent, at, conn),
    )


def kick_job(model: Model, job: Job) -> JobCommand:
    return JobCommand(
        b"kick-job %d" % job.id, b"KICKED", lambda sent, at, conn: model.kick(job, sent, at, conn)
    )


def reserve_job(model: Model, job: Job) -> JobCommand:
    return JobCommand(
        b"reserve-job %d" % job.id,
        b"RESERVED %d " % job.id,
        lambda sent, at, conn: model.reserve(job, sent, at, conn),
    )


def execute(connection: Connection, commands: list[JobCommand]) -> list[Reply]:
    """Send all commands at once."""
    if not commands:
        return []
    words = [command.word for command in commands]
    sent_ns, replies = connection.expect([command.command for command in commands], words)
    for command, reply in zip(commands, replies, strict=True):
        command.note(sent_ns, reply.at_ns, connection.name)
    return replies
