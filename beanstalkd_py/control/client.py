"""The client of the control socket."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from beanstalkd_py import errors
from beanstalkd_py.control import messages
from beanstalkd_py.control.messages import Message, MessageReader, encode
from beanstalkd_py.control.socket_path import ENVIRONMENT, paths_to_try

RECEIVE_BYTES = 1 << 16


class ControlClient:
    """A connection to the control socket at `path`. Raises NoControlError.

    `timeout_s` applies to each message of an answer. All methods raise ControlError.
    """

    def __init__(self, path: Path, timeout_s: float = 10.0) -> None:
        self._path = path
        self._reader = MessageReader(messages.ANSWER_BYTES)
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

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def server_pid(self) -> int:
        """Return the listening process's id in this PID namespace, or 0."""
        size = struct.calcsize("3i")
        credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        pid: int = struct.unpack("3i", credentials)[0]
        return pid

    def stop(self) -> None:
        """Stop the current command; the end of its answer reports the progress."""
        try:
            self._socket.sendall(encode({messages.DO: messages.STOP}))
        except OSError as error:
            raise self._lost(error) from error

    def ask(self, request: str, **details: Any) -> Any:
        """Return the end of the answer, without its parts."""
        *_, end = self._answers(request, details)
        return end[messages.DONE]

    def answers(self, request: str, **details: Any) -> Iterator[Any]:
        """Yield the parts of the answer, then its end."""
        for message in self._answers(request, details):
            yield message[messages.PART if messages.PART in message else messages.DONE]

    def parts(self, request: str, **details: Any) -> Iterator[Any]:
        for message in self._answers(request, details):
            if messages.PART in message:
                yield message[messages.PART]

    def _answers(self, request: str, details: dict[str, Any]) -> Iterator[Message]:
        try:
            self._socket.sendall(encode({messages.DO: request, **details}))
            while True:
                while (message := self._reader.take()) is None:
                    data = self._socket.recv(RECEIVE_BYTES)
                    if not data:
                        raise errors.ControlError("the server has closed the control socket")
                    self._reader.feed(data)
                if messages.ERROR in message:
                    raise errors.ControlError(str(message[messages.ERROR]))
                if messages.PART not in message and messages.DONE not in message:
                    raise ValueError("the message has no answer")
                yield message
                if messages.DONE in message:
                    return
        except ValueError as error:
            raise errors.NoControlError(
                f"{self._path} is not the control socket of a beanstalkd-py: {error};"
                f" --control or {ENVIRONMENT} sets another path"
            ) from error
        except TimeoutError as error:
            raise errors.ControlError(f"no answer on the control socket {self._path}") from error
        except OSError as error:
            raise self._lost(error) from error

    def _lost(self, error: OSError) -> errors.ControlError:
        reason = error.strerror or error
        return errors.ControlError(f"lost the control socket {self._path}: {reason}")


def connect(address: str, timeout_s: float = 10.0) -> ControlClient:
    """Connect to the server on this local address. Raises NoControlError."""
    if configured := os.environ.get(ENVIRONMENT):
        return ControlClient(Path(configured), timeout_s)
    paths = paths_to_try(address, os.environ)
    for path in paths:
        try:
            return ControlClient(path, timeout_s)
        except errors.NoControlError as error:
            # A killed server leaves a socket that refuses connections. Try the other paths, because
            # another server on the same address may have one of them.
            if not isinstance(error.__cause__, (FileNotFoundError, ConnectionRefusedError)):
                raise
    listed = ", ".join(map(str, paths))
    raise errors.NoControlError(
        f"no control socket of a beanstalkd-py on {address} at {listed}; is it running, and are you"
        f" its user? --control or {ENVIRONMENT} sets another path"
    )
