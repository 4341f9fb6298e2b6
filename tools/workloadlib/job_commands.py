"""Commands about single jobs, and the events that their replies acknowledge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from .connection import Connection, Reply, When
from .model import Job, Model


@dataclass(frozen=True, slots=True)
class JobCommand:
    """`log` logs the event when the reply begins with `word`."""

    command: bytes
    word: bytes
    log: Callable[[When], None]


def delete(model: Model, job: Job) -> JobCommand:
    return JobCommand(b"delete %d" % job.id, b"DELETED", partial(model.delete, job))


def touch(model: Model, job: Job) -> JobCommand:
    return JobCommand(b"touch %d" % job.id, b"TOUCHED", partial(model.touch, job))


def bury(model: Model, job: Job, pri: int) -> JobCommand:
    return JobCommand(b"bury %d %d" % (job.id, pri), b"BURIED", partial(model.bury, job, pri))


def release(model: Model, job: Job, pri: int, delay: int) -> JobCommand:
    command = b"release %d %d %d" % (job.id, pri, delay)
    return JobCommand(command, b"RELEASED", partial(model.release, job, pri, delay))


def kick_job(model: Model, job: Job) -> JobCommand:
    return JobCommand(b"kick-job %d" % job.id, b"KICKED", partial(model.kick, job))


def reserve_job(model: Model, job: Job) -> JobCommand:
    word = b"RESERVED %d " % job.id
    return JobCommand(b"reserve-job %d" % job.id, word, partial(model.reserve, job))


def execute(connection: Connection, commands: list[JobCommand]) -> list[Reply]:
    """Send all commands at once."""
    if not commands:
        return []
    words = [command.word for command in commands]
    replies = connection.expect([command.command for command in commands], words)
    for command, reply in zip(commands, replies, strict=True):
        command.log(reply.when)
    return replies
