"""A server with scripted replies."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

Answer = Callable[[bytes, bytes], bytes]


@contextlib.contextmanager
def scripted(answer: Answer) -> Iterator[tuple[str, list[bytes]]]:
    """Yield its address and the received commands, without bodies."""
    commands: list[bytes] = []
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        thread = threading.Thread(target=_serve, args=(listening, answer, commands), daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}", commands
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(20)
        assert not thread.is_alive()


def _serve(listening: socket.socket, answer: Answer, commands: list[bytes]) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection, connection.makefile("rb") as reader, contextlib.suppress(OSError):
            used = b"default"
            while line := reader.readline():
                command = line.rstrip()
                if command.startswith(b"put "):
                    reader.read(int(command.split()[-1]) + 2)
                commands.append(command)
                reply = _usual(command) or answer(command, used)
                if command.startswith(b"use ") and reply.startswith(b"USING"):
                    used = command[4:]
                connection.sendall(reply)


def _usual(command: bytes) -> bytes:
    if command == b"list-tube-used":
        return b"USING default\r\n"
    if command == b"stats":
        text = b"---\nmax-job-size: 65535\n"
        return b"OK %d\r\n%b\r\n" % (len(text), text)
    return b""
