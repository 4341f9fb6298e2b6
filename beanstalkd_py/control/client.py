"""The administrator's end of a control socket. Must not know what is asked."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from beanstalkd_py import errors
from beanstalkd_py.control.messages import (
    ANSWER_BYTES,
    DO,
    DONE,
    ERROR,
    PART,
    STOP,
    MessageReader,
    encode,
)
from beanstalkd_py.control.socket_path import ENVIRONMENT, places_to_ask

RECEIVE_BYTES = 1 << 16


class ControlClient:
    """A connection to the server whose control socket is at `path`.

    Raises NoControlError if there is none; `timeout_s` is how long to wait for each answer.
    """

    def __init__(self, path: Path, timeout_s: float = 10.0) -> None:
        self._path = path
        self._inbox = MessageReader(ANSWER_BYTES)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(os.fspath(path))
        except OSError as error:
            self._socket.close()
            raise errors.NoControlError(
                f"cannot reach the control socket {path}: {error.strerror or error}"
            ) from error

    def __enter__(self) -> ControlClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    def server_pid(self) -> int:
        """The process that listens, as this one sees it; 0 if it cannot."""
        size = struct.calcsize("3i")
        credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        pid: int = struct.unpack("3i", credentials)[0]
        return pid

    def stop(self) -> None:
        """Asks the server to stop what it is answering; the end of the answer says how far it came.

        Raises ControlError.
        """
        try:
            self._socket.sendall(encode({DO: STOP}))
        except OSError as error:
            text = f"lost the control socket {self._path}: {error.strerror or error}"
            raise errors.ControlError(text) from error

    def ask(self, request: str, **details: Any) -> Any:
        """What the server answers in the end; parts are left out. Raises ControlError."""
        for message in self._answers(request, details):
            if DONE in message:
                return message[DONE]
        raise AssertionError("unreachable: an answer ends with what is done")

    def answers(self, request: str, **details: Any) -> Iterator[Any]:
        """The parts of an answer as they come, and at last its end. Raises ControlError."""
        for message in self._answers(request, details):
            yield message[PART] if PART in message else message[DONE]

    def parts(self, request: str, **details: Any) -> Iterator[Any]:
        """The parts of an answer, as they come. Raises ControlError."""
        for message in self._answers(request, details):
            if PART in message:
                yield message[PART]

    def _answers(self, request: str, details: dict[str, Any]) -> Iterator[dict[str, Any]]:
        try:
            self._socket.sendall(encode({DO: request, **details}))
            while True:
                while (message := self._inbox.take()) is None:
                    data = self._socket.recv(RECEIVE_BYTES)
                    if not data:
                        raise errors.ControlError("the server has closed the control socket")
                    self._inbox.feed(data)
                if ERROR in message:
                    raise errors.ControlError(str(message[ERROR]))
                yield message
                if DONE in message:
                    return
        except TimeoutError as error:
            raise errors.ControlError(f"no answer on the control socket {self._path}") from error
        except OSError as error:
            text = f"lost the control socket {self._path}: {error.strerror or error}"
            raise errors.ControlError(text) from error


def connect(address: str, timeout_s: float = 10.0) -> ControlClient:
    """The server on this address of this machine. Raises NoControlError."""
    given = os.environ.get(ENVIRONMENT)
    if given:
        return ControlClient(Path(given), timeout_s)
    places = places_to_ask(address, os.environ)
    for path in places:
        try:
            return ControlClient(path, timeout_s)
        except errors.NoControlError as error:
            # A server that was killed has left a socket that refuses: whoever serves on this
            # address now has its socket at another place, or has none.
            if not isinstance(error.__cause__, (FileNotFoundError, ConnectionRefusedError)):
                raise
    listed = ", ".join(map(str, places))
    raise errors.NoControlError(
        f"no control socket of a beanstalkd-py on {address} at {listed}; is it running, and are you"
        f" its user? --control or {ENVIRONMENT} names another place"
    )
