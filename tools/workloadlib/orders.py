"""Commands about one job each, and what their replies make of it in the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .connection import Connection, Reply
from .world import Job, World

Note = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Order:
    """`note` gets the times and the connection once the reply begins with `word`."""

    command: bytes
    word: bytes
    note: Note


def delete(world: World, job: Job) -> Order:
    return Order(
        b"delete %d" % job.id, b"DELETED", lambda sent, at, conn: world.delete(job, sent, at, conn)
    )


def touch(world: World, job: Job) -> Order:
    return Order(
        b"touch %d" % job.id, b"TOUCHED", lambda sent, at, conn: world.touch(job, sent, at, conn)
    )


def bury(world: World, job: Job, pri: int) -> Order:
    return Order(
        b"bury %d %d" % (job.id, pri),
        b"BURIED",
        lambda sent, at, conn: world.bury(job, pri, sent, at, conn),
    )


def release(world: World, job: Job, pri: int, delay: int) -> Order:
    return Order(
        b"release %d %d %d" % (job.id, pri, delay),
        b"RELEASED",
        lambda sent, at, conn: world.release(job, pri, delay, sent, at, conn),
    )


def kick_job(world: World, job: Job) -> Order:
    return Order(
        b"kick-job %d" % job.id, b"KICKED", lambda sent, at, conn: world.kick(job, sent, at, conn)
    )


def reserve_job(world: World, job: Job) -> Order:
    return Order(
        b"reserve-job %d" % job.id,
        b"RESERVED %d " % job.id,
        lambda sent, at, conn: world.reserve(job, sent, at, conn),
    )


def give(connection: Connection, orders: list[Order]) -> list[Reply]:
    """All of them at once."""
    if not orders:
        return []
    words = [order.word for order in orders]
    sent_ns, replies = connection.expect([order.command for order in orders], words)
    for order, reply in zip(orders, replies, strict=True):
        order.note(sent_ns, reply.at_ns, connection.name)
    return replies
