"""Accepts connections on the control socket and answers their requests, in a greenlet each.

The mode of the socket file admits only the server's user and root.
"""

from __future__ import annotations

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
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.logging.throttling import OUT_OF_DESCRIPTORS, DescriptorPressure
from beanstalkd_py.server.process.fd_wait import FdWatcher, WaitingSocket

MAX_CONNECTIONS = 64
RECEIVE_BYTES = 1 << 14

Handler = Callable[[Message], Generator[Any, None, Any]]
"""Executes a request: yields the parts of the answer, returns its end. Raises BeanstalkdError."""


class ControlServer:
    """Serves one listening socket, which it owns.

    `refusal` returns the reply to a request that has no handler.
    """

    def __init__(
        self,
        listener: Listener,
        handlers: Mapping[str, Handler],
        refusal: Callable[[object], str] = "unknown request {!r}".format,
    ) -> None:
        self._listener = listener
        self._handlers = handlers
        self._refusal = refusal
        self._pressure = DescriptorPressure()
        self._tasks: set[gevent.Greenlet[[], None]] = set()

    def run(self) -> None:
        """Accept until the greenlet is killed."""
        ready = FdWatcher(self._listener.socket.fileno())
        try:
            while True:
                ready.wait()
                self._accept()
        finally:
            ready.close()

    def stop(self) -> None:
        """End all connections; the listening socket stays open."""
        gevent.killall(list(self._tasks))

    def close(self) -> None:
        self.stop()
        self._listener.close()

    def _accept(self) -> None:
        if len(self._tasks) >= MAX_CONNECTIONS:
            self._pressure.pause(f"limit of {MAX_CONNECTIONS} control connections reached")
            return
        try:
            connection, _ = self._listener.socket.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in OUT_OF_DESCRIPTORS:
                self._pressure.pause(os.strerror(error.errno))
            return
        self._pressure.relieve()
        connection.setblocking(False)
        task = gevent.spawn(partial(self._serve, connection))
        self._tasks.add(task)
        task.link(self._tasks.discard)

    def _serve(self, sock: socket.socket) -> None:
        with sock:
            connection = _Connection(sock)
            try:
                while (request := connection.next_request()) is not None:
                    if request.get(DO) != STOP:  # a late stop: its command has ended
                        self._answer(connection, request)
            except ValueError as error:
                connection.reply({ERROR: f"{error}; check that both sides have the same version"})
            except OSError:
                pass  # the client is gone
            finally:
                connection.close()

    def _answer(self, connection: _Connection, request: Message) -> None:
        name = request.get(DO)
        handler = self._handlers.get(name) if isinstance(name, str) else None
        if handler is None:
            connection.reply({ERROR: self._refusal(name)})
            return
        LOGGER.debug("control: %s", name)
        steps = handler(request)
        while True:
            try:
                part = next(steps)
            except StopIteration as end:
                connection.reply({DONE: end.value})
                return
            except errors.BeanstalkdError as error:
                connection.reply({ERROR: str(error)})
                return
            connection.reply({PART: part})
            if isinstance(part, dict) and connection.is_stop_next():
                steps.close()
                connection.reply({DONE: {**part, "stopped": True}})
                return


class _Connection(WaitingSocket):
    """A client. Reads at most one request ahead while the server answers another one."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._reader = MessageReader(REQUEST_BYTES)
        self._next: Message | None = None

    def next_request(self) -> Message | None:
        """Return None at the end. Raises ValueError, OSError."""
        request, self._next = self._next, None
        while request is None and (request := self._reader.take()) is None:
            data = self.receive(RECEIVE_BYTES)
            if not data:
                return None
            self._reader.feed(data)
        return request

    def is_stop_next(self) -> bool:
        """Return whether a request to stop has arrived. Raises ValueError, OSError."""
        if self._next is None:
            self._next = self._reader.take()
        if self._next is None:
            try:
                self._reader.feed(self.socket.recv(RECEIVE_BYTES))
            except BlockingIOError:
                return False
            self._next = self._reader.take()
        return self._next is not None and self._next.get(DO) == STOP

    def reply(self, message: Message) -> None:
        """Raises OSError."""
        self.send(encode(message))
