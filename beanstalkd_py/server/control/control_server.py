"""The server's end of the control socket: requests in, answers out, one greenlet per connection.

Only the server's own user and root can open it: the file's mode says so. Must not know what the
requests do.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any

import gevent

from beanstalkd_py import errors
from beanstalkd_py.control.messages import (
    DO,
    DONE,
    ERROR,
    PART,
    REQUEST_BYTES,
    STOP,
    Message,
    MessageReader,
    encode,
)
from beanstalkd_py.server.accept.listeners import Listener
from beanstalkd_py.server.logging.descriptor_pressure import DescriptorPressure
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.process.fd_wait import READ, WRITE, FdWatcher

CONNECTIONS = 64
"""At most so many at a time; further ones wait."""
RECEIVE_BYTES = 1 << 14

Handler = Callable[[Message], Generator[Any, None, Any]]
"""Does a request. What it yields are the parts of the answer, what it returns ends it. A
BeanstalkdError is an answer, too."""


class ControlServer:
    """Answers requests on one listening socket, which it owns."""

    def __init__(self, listener: Listener, handlers: Mapping[str, Handler]) -> None:
        self._listener = listener
        self._handlers = handlers
        self._shortage = DescriptorPressure()
        self._conversations: set[gevent.Greenlet[[], None]] = set()

    def run(self) -> None:
        """Accepts until its greenlet is killed."""
        ready = FdWatcher(self._listener.socket.fileno())
        try:
            while True:
                ready.wait()
                self._accept()
        finally:
            ready.close()

    def close(self) -> None:
        """Stops listening, and ends all conversations."""
        gevent.killall(list(self._conversations))
        self._listener.close()

    def _accept(self) -> None:
        if len(self._conversations) >= CONNECTIONS:
            self._shortage.pause("there are as many control connections as there may be")
            return
        try:
            connection, _ = self._listener.socket.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                self._shortage.pause(os.strerror(error.errno))
            return
        self._shortage.over()
        connection.setblocking(False)
        task = gevent.spawn(partial(self._converse, connection))
        self._conversations.add(task)
        task.link(self._conversations.discard)

    def _converse(self, connection: socket.socket) -> None:
        with connection:
            inbox = MessageReader(REQUEST_BYTES)
            line = _Connection(connection)
            requests = _RequestReader(line, inbox)
            try:
                while (request := requests.next()) is not None:
                    if request.get(DO) != STOP:  # else the answer has ended before it came
                        self._answer(line, requests, request)
            except ValueError as error:
                line.send({ERROR: f"{error}; is this a beanstalkd-py of the same version?"})
            except OSError:
                pass  # whoever asked has gone
            finally:
                line.close()

    def _answer(self, line: _Connection, requests: _RequestReader, request: Message) -> None:
        name = request.get(DO)
        handler = self._handlers.get(name) if isinstance(name, str) else None
        if handler is None:
            line.send({ERROR: f"this server knows no request {name!r}"})
            return
        LOGGER.debug("control: %s", name)
        steps = handler(request)
        while True:
            try:
                part = next(steps)
            except StopIteration as end:
                line.send({DONE: end.value})
                return
            except errors.BeanstalkdError as error:
                line.send({ERROR: str(error)})
                return
            line.send({PART: part})
            if isinstance(part, dict) and requests.is_stop_next():
                steps.close()
                line.send({DONE: {**part, "stopped": True}})
                return


class _RequestReader:
    """The requests of a connection, in order. At most one is read ahead, while one is answered."""

    def __init__(self, line: _Connection, inbox: MessageReader) -> None:
        self._line = line
        self._inbox = inbox
        self._ahead: Message | None = None

    def next(self) -> Message | None:
        """The next one; None at the end. Raises ValueError, OSError."""
        request, self._ahead = self._ahead, None
        while request is None and (request := self._inbox.take()) is None:
            data = self._line.receive()
            if not data:
                return None
            self._inbox.feed(data)
        return request

    def is_stop_next(self) -> bool:
        """Whether a request to stop is there already. Raises ValueError, OSError."""
        if self._ahead is None:
            self._ahead = self._inbox.take()
        if self._ahead is None:
            self._inbox.feed(self._line.receive_now())
            self._ahead = self._inbox.take()
        return self._ahead is not None and self._ahead.get(DO) == STOP


class _Connection:
    """A non-blocking socket, waited for in its greenlet."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._readable = FdWatcher(connection.fileno(), READ)
        self._writable = FdWatcher(connection.fileno(), WRITE)

    def receive(self) -> bytes:
        """The next bytes; none at the end. Raises OSError."""
        while True:
            try:
                return self._socket.recv(RECEIVE_BYTES)
            except BlockingIOError:
                self._readable.wait()

    def receive_now(self) -> bytes:
        """The bytes that are there, perhaps none. Raises OSError."""
        try:
            return self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return b""

    def send(self, message: Message) -> None:
        """All of it. Raises OSError."""
        data = memoryview(encode(message))
        while data:
            try:
                data = data[self._socket.send(data) :]
            except BlockingIOError:
                self._writable.wait()

    def close(self) -> None:
        """Before the socket."""
        self._readable.close()
        self._writable.close()
