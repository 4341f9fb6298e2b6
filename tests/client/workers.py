"""Workers in this process and in others, their events, and servers for them."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from processes import eventually
from servers import Server, free_port, our_command

from beanstalkd_py.client import Client, Event, Finished, Outcome, Worker

LIMIT_S = 20.0
Kind = TypeVar("Kind", bound=Event)


class Events(list[Event]):
    """A hook that keeps all events."""

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self if isinstance(event, kind)]

    def outcomes(self) -> list[Outcome]:
        return [event.outcome for event in self.of(Finished)]

    def wait_for(self, kind: type[Kind], count: int = 1) -> list[Kind]:
        assert eventually(lambda: len(self.of(kind)) >= count, LIMIT_S), list(self)
        return self.of(kind)


@contextlib.contextmanager
def running(worker: Worker) -> Iterator[None]:
    """Run a worker in a thread until the end of the block."""
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(LIMIT_S)
        assert not thread.is_alive()


def connect(server: Server, tube: str) -> Client[str]:
    return Client(("127.0.0.1", server.port), use=tube, watch=tube)


class Program:
    """A worker in a process of its own, whose handlers write a line for each job.

    `body` is the source of the handler; `delivery` and `log` are in its scope. `prelude` runs
    first.
    """

    def __init__(
        self, folder: Path, port: int, tube: str, body: str, arguments: str, prelude: str
    ) -> None:
        self.path = folder / "lines"
        self.path.touch()
        source = _PROGRAM.format(
            port=port,
            tube=tube,
            body=body,
            path=str(self.path),
            arguments=arguments,
            prelude=prelude,
        )
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", source], stderr=subprocess.PIPE, start_new_session=True
        )

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    def wait_for(self, condition: Callable[[list[str]], bool], limit_s: float = LIMIT_S) -> None:
        assert eventually(lambda: condition(self.lines()), limit_s), self.lines()[-20:]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(LIMIT_S)


_PROGRAM = """
import os, signal, threading, time
from beanstalkd_py.client import Backoff, ReleaseJob, Retry, Worker

output = os.open({path!r}, os.O_WRONLY | os.O_APPEND)
def log(*words):
    os.write(output, (" ".join(map(str, words)) + "\\n").encode())

def hook(event):
    log(type(event).__name__, os.getpid())

{prelude}
worker = Worker(("127.0.0.1", {port}), hooks=[hook], {arguments})

@worker.handler({tube!r}, retry=Retry(max_attempts=None, backoff=Backoff(first=0)))
def handle(delivery):
    {body}

log("Parent", os.getpid())
worker.run()
log("Stopped", os.getpid())
"""


@contextlib.contextmanager
def program(
    folder: Path, port: int, tube: str, body: str, arguments: str = "", prelude: str = "pass"
) -> Iterator[Program]:
    started = Program(folder, port, tube, body, arguments, prelude)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait(LIMIT_S)
        assert started.process.stderr is not None
        started.process.stderr.close()


class RestartingServer:
    """A server on one port and one folder, which can be killed and started again."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.port = free_port()
        self._command = [*our_command(), "-l", "127.0.0.1", "-p", str(self.port), "-b", str(folder)]
        self._command += arguments
        self.server = self._started()

    def kill(self) -> None:
        self.server.kill()

    def start(self) -> None:
        self.server = self._started()

    def _started(self) -> Server:
        server = Server(self._command, self.port, {})
        server.wait_until_accepting()
        return server


@contextlib.contextmanager
def restarting(folder: Path, *arguments: str) -> Iterator[RestartingServer]:
    server = RestartingServer(folder, *arguments)
    try:
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def serving_unix(path: Path) -> Iterator[str]:
    """Run a server that listens on a Unix socket."""

    def accepts() -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(path)) == 0

    command = [*our_command(), "-l", f"unix:{path}"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            assert eventually(accepts, LIMIT_S)
            yield str(path)
        finally:
            server.terminate()
