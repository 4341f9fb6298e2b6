"""Puts one job over a connection of its own, which a worker serves like that of any client."""

from __future__ import annotations

import socket
from collections.abc import Callable

import gevent

from beanstalkd_py.errors import PutError
from beanstalkd_py.schedules.schedule import Schedule
from beanstalkd_py.server.accept.acceptor import Receiver
from beanstalkd_py.server.process.fd_wait import WaitingSocket

REPLY_LIMIT_S = 10.0
"""A put that waits longer is repeated. Its key keeps the server from inserting a second job."""
RECEIVE_BYTES = 4096

UNIQUE_WINDOW_S = 86400
"""For how long after its end a job keeps a repeated put of its tick from inserting another one."""


def put_job(receiver: Receiver, schedule: Schedule, key: str | None = None) -> int:
    """Return the id of the new job, or of the job that has the key. Raises PutError."""
    if receiver.free_slots() <= 0:
        raise PutError("no descriptors are left for a connection")
    try:
        ours, theirs = socket.socketpair()
    except OSError as error:
        raise PutError(f"cannot create a connection: {error.strerror}") from error
    with ours:
        ours.setblocking(False)
        theirs.setblocking(False)
        waiting = WaitingSocket(ours)
        try:
            with gevent.Timeout(REPLY_LIMIT_S, TimeoutError(f"no reply within {REPLY_LIMIT_S} s")):
                return _exchange(waiting, lambda: receiver.send([theirs.detach()]), schedule, key)
        except OSError as error:
            raise PutError(f"lost the connection: {error.strerror or error}") from error
        finally:
            waiting.close()
            theirs.close()


def _exchange(
    connection: WaitingSocket, hand_over: Callable[[], None], schedule: Schedule, key: str | None
) -> int:
    commands, expected = _commands(schedule, key)
    # The worker is chosen by the first command, so that is sent before.
    sent = connection.socket.send(commands)
    hand_over()
    connection.send(commands[sent:])
    replies = _Replies(connection)
    for word in expected:
        reply = replies.next_line()
        first, *values = reply.split(b" ")
        if first != word:
            raise PutError(reply.decode("ascii", "replace"))
    return int(values[0])


def _commands(schedule: Schedule, key: str | None) -> tuple[bytes, list[bytes]]:
    """Return the commands, and the first words of their expected replies."""
    body = schedule.body.encode()
    numbers = (schedule.priority, schedule.delay, schedule.ttr, len(body))
    commands = [b"use %b\r\n" % schedule.tube.encode()]
    expected = [b"USING"]
    if key is not None:
        commands.append(b"with unique=%b window=%d\r\n" % (key.encode(), UNIQUE_WINDOW_S))
        expected.append(b"WITH")
    commands.append(b"put %d %d %d %d\r\n%b\r\n" % (*numbers, body))
    return b"".join(commands), [*expected, b"INSERTED"]


class _Replies:
    """Reads the lines of replies."""

    def __init__(self, connection: WaitingSocket) -> None:
        self._connection = connection
        self._data = b""

    def next_line(self) -> bytes:
        """Raises PutError at the end of the connection, OSError."""
        while b"\r\n" not in self._data:
            received = self._connection.receive(RECEIVE_BYTES)
            if not received:
                raise PutError("the worker closed the connection")
            self._data += received
        line, _, self._data = self._data.partition(b"\r\n")
        return line
