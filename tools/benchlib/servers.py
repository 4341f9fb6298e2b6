"""Start, query and stop the two servers."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from . import BenchError
from .placement import Cpus, children_on
from .processes import process_stat, process_tree, tree_cpu_ns, tree_rss_bytes

HOST = "127.0.0.1"
STOP_SECONDS = 15.0
POLL_SECONDS = 0.001
CANNOT_BIND = 111
START_ATTEMPTS = 3

Stats = dict[str, str]


@dataclass(frozen=True)
class ServerSpec:
    """The start command of one of the two servers; beanstalkd's options are appended to it."""

    name: str
    command: tuple[str, ...]
    cwd: Path
    cpus: Cpus | None = None


@dataclass(frozen=True)
class Server:
    """A running server. All figures are sums over the process and its descendants."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    started: float

    def cpu_ns(self) -> int:
        return tree_cpu_ns(self.process.pid)

    def rss_bytes(self) -> int:
        return tree_rss_bytes(self.process.pid)

    def stats(self, timeout: float = 10.0) -> Stats:
        return read_stats(self.port, timeout)

    def wait_for(self, met: Callable[[Stats], bool], seconds: float) -> float:
        """Poll `stats` until `met` accepts them; return the time since the start of the process."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                status = self.process.returncode
                raise BenchError(f"the server ended with {status}: {last_log_line(self.log)}")
            with contextlib.suppress(OSError):
                if met(self.stats(max(0.1, deadline - time.monotonic()))):
                    return time.monotonic() - self.started
            time.sleep(POLL_SECONDS)
        raise BenchError(f"the server was not ready after {seconds:g} s: {last_log_line(self.log)}")

    def first_reply(self, seconds: float) -> tuple[float, float]:
        """Return the times from the start of the process to the first connection and its reply."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with (
                contextlib.suppress(ConnectionRefusedError),
                socket.create_connection((HOST, self.port), seconds) as connection,
            ):
                listening = time.monotonic() - self.started
                connection.sendall(b"list-tube-used\r\n")
                if connection.recv(64):
                    return listening, time.monotonic() - self.started
            time.sleep(POLL_SECONDS)
        raise BenchError(f"the server was not ready after {seconds:g} s: {last_log_line(self.log)}")


def last_log_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "(its log is empty)"


def read_stats(port: int, timeout: float) -> Stats:
    with socket.create_connection((HOST, port), timeout) as connection:
        connection.sendall(b"stats\r\n")
        with connection.makefile("rb") as replies:
            word, _, size = replies.readline().partition(b" ")
            if word != b"OK":
                raise ConnectionError("no answer to stats")
            body = replies.read(int(size)).decode()
    pairs = (line.partition(": ") for line in body.splitlines())
    return {key: value for key, separator, value in pairs if separator}


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return different ports."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


@contextlib.contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def running(
    spec: ServerSpec, folder: Path, *options: str, ready_seconds: float = 60.0
) -> Iterator[Server]:
    """Start the server on a free port, and stop it at the end. 0 `ready_seconds`: do not wait.

    Its log is in a scratch folder of `folder`.
    """
    with scratch_folder(folder) as scratch:
        server = _started(spec, scratch / "server.log", options, ready_seconds)
        try:
            yield server
        finally:
            stop(server.process)


def _started(spec: ServerSpec, log: Path, options: tuple[str, ...], ready_seconds: float) -> Server:
    """Start the server, again with another port if another process has taken it meanwhile."""
    for attempt in range(1, START_ATTEMPTS + 1):
        server = start(spec, log, options)
        # The other process may be such a server, too, and answer in the place of this one.
        pid = str(server.process.pid)
        try:
            if ready_seconds > 0:
                server.wait_for(lambda stats, pid=pid: stats.get("pid") == pid, ready_seconds)
            return server
        except BaseException:
            stop(server.process)
            if server.process.returncode != CANNOT_BIND or attempt == START_ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def start(spec: ServerSpec, log: Path, options: tuple[str, ...]) -> Server:
    port = free_port()
    command = [*spec.command, "-l", HOST, "-p", str(port), *options]
    with log.open("wb") as output, children_on(spec.cpus):
        started = time.monotonic()
        try:
            process = subprocess.Popen(
                command,
                cwd=spec.cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        except OSError as problem:
            raise BenchError(f"cannot start {spec.name}: {problem}") from problem
    return Server(process, port, log, started)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM, and later SIGKILL to the remaining processes of the server."""
    family = process_tree(process.pid)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    for member in family:
        now = process_stat(member.pid)
        if now is not None and now.start_ticks == member.start_ticks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member.pid, signal.SIGKILL)
    process.wait(STOP_SECONDS)
