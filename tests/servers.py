"""Start and stop beanstalkd servers for tests: ours and Debian's in C.

Every server listens on a free port of 127.0.0.1, runs in its own process group, and is stopped by
its own id. No server outlives its test run: it gets SIGTERM when the process that started it dies,
and SIGKILL after `LIFETIME_S`.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from wire import Client, NoReplyError

DEFAULT_REFERENCE = "/usr/bin/beanstalkd"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
LIFETIME_S = 900.0
READY_LINE = "beanstalkd-py: ready: "
# Exit status of a server that could not bind, because another process took its port.
CANNOT_BIND = 111
START_ATTEMPTS = 3

# util-linux's names of limits.
_LIMIT_NAMES = {resource.RLIMIT_NOFILE: "nofile", resource.RLIMIT_FSIZE: "fsize"}

Limits = Mapping[int, int]


class StartError(AssertionError):
    """A server did not start to accept connections."""


class Server:
    """A running server process and its port."""

    def __init__(self, command: list[str], port: int, limits: Limits) -> None:
        self.port = port
        # A file and not a pipe, so that a server that floods stderr does not block on it.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self._last_stderr = ""
        self._process = subprocess.Popen(
            [*_prefix(limits), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            start_new_session=True,
        )
        self._guard = threading.Timer(LIFETIME_S, self.kill)
        self._guard.daemon = True
        self._guard.start()

    @property
    def pid(self) -> int:
        """The id of the parent process."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """The exit status, or None while the server runs."""
        return self._process.poll()

    def connect(self, timeout_s: float = 5.0) -> Client:
        return Client(self.port, timeout_s)

    def stderr(self) -> str:
        """Return the output on stderr so far."""
        if self._stderr.closed:
            return self._last_stderr
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), size, 0).decode(errors="replace")

    def complaints(self) -> str:
        """Return the output on stderr without the ready line."""
        return without_ready_line(self.stderr())

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def cpu_s(self) -> float:
        """Return the CPU seconds of all processes of this server."""
        return sum(_cpu_of(pid) for pid in _group_members(self.pid))

    def stop(self) -> int:
        """Send SIGTERM, wait for the end, and return the exit status."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(
                    f"the server does not end after SIGTERM; stderr: {self.stderr()}"
                ) from None
        self.kill()
        return self._process.returncode

    def kill(self) -> None:
        """Kill all processes of the process group."""
        self._guard.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(STOP_TIMEOUT_S)
        # A process holds its lock on a folder until it has ended completely.
        end = time.monotonic() + STOP_TIMEOUT_S
        while any(_runs(pid) for pid in _group_members(self.pid)) and time.monotonic() < end:
            time.sleep(0.002)
        self._last_stderr = self.stderr()
        self._stderr.close()

    def wait_until_accepting(self) -> None:
        """Wait until a command is answered; raises StartError after START_TIMEOUT_S."""
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end:
            if self.exit_status is not None:
                raise StartError(f"exit status {self.exit_status} at start: {self.stderr()}")
            # Before the server listens, a connection fails or, rarely, connects to itself or to an
            # earlier owner of the port.
            # process that had the port before.
            with contextlib.suppress(OSError, NoReplyError), self.connect() as client:
                if client.ask(b"list-tube-used\r\n", START_TIMEOUT_S) == b"USING default\r\n":
                    return
            time.sleep(0.01)
        raise StartError(f"nothing listens after {START_TIMEOUT_S:.0f} s: {self.stderr()}")


def without_ready_line(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(READY_LINE))


def free_port() -> int:
    """Return a port that is free at the moment."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return different ports that are free at the moment."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def our_command() -> list[str]:
    """Return the command of our server, or TEST_SERVER_COMMAND."""
    replacement = os.environ.get("TEST_SERVER_COMMAND")
    if replacement:
        return shlex.split(replacement)
    # One worker, as C beanstalkd; later arguments of a test override it.
    return [sys.executable, "-m", "beanstalkd_py", "serve", "--workers", "1"]


def reference_command() -> list[str]:
    """Return the command of C beanstalkd. Tests fail without it; they are never skipped."""
    path = os.environ.get("BEANSTALKD_PATH", DEFAULT_REFERENCE)
    if shutil.which(path) is None:
        raise StartError(f"C beanstalkd is missing at {path}: run tools/test, which installs it")
    return [path]


@contextlib.contextmanager
def ours(*args: str | Path, limits: Limits | None = None) -> Iterator[Server]:
    """Run our server with these additional arguments."""
    with _running(our_command(), args, limits or {}) as server:
        yield server


@contextlib.contextmanager
def keeping_history(*args: str | Path) -> Iterator[Server]:
    """Run our server with workers that keep a history."""
    script = Path(__file__).with_name("keeping_history.py")
    command = [sys.executable, str(script), "serve", "--workers", "1"]
    with _running(command, args, {}) as server:
        yield server


@contextlib.contextmanager
def reference(
    *args: str | Path, limits: Limits | None = None, user: int | None = None
) -> Iterator[Server]:
    """Run C beanstalkd with these additional arguments; `user` is its uid and gid."""
    command = reference_command()
    if user is not None:
        ids = ["--reuid", str(user), "--regid", str(user), "--clear-groups"]
        command = ["setpriv", *ids, "--pdeathsig", "TERM", *command]
    with _running(command, args, limits or {}) as server:
        yield server


@contextlib.contextmanager
def _running(prefix: list[str], args: tuple[str | Path, ...], limits: Limits) -> Iterator[Server]:
    server = _start(prefix, args, limits)
    try:
        yield server
    except BaseException as error:
        error.add_note(f"exit status {server.exit_status}; stderr: {server.stderr()[-2000:]}")
        server.kill()
        raise
    server.stop()


def _start(prefix: list[str], args: tuple[str | Path, ...], limits: Limits) -> Server:
    for attempt in range(1, START_ATTEMPTS + 1):
        port = free_port()
        command = [*prefix, "-l", "127.0.0.1", "-p", str(port), *map(str, args)]
        server = Server(command, port, limits)
        try:
            server.wait_until_accepting()
        except BaseException as error:
            taken = server.exit_status == CANNOT_BIND and isinstance(error, StartError)
            server.kill()
            if taken and attempt < START_ATTEMPTS:
                continue
            raise
        return server
    raise AssertionError("unreachable")


def _prefix(limits: Limits) -> list[str]:
    """Return commands that set resource limits and end the server with this process.

    They replace `preexec_fn`, which is not safe in a process with threads.
    """
    bounds = [f"--{_LIMIT_NAMES[limit]}={value}:{value}" for limit, value in limits.items()]
    prefix = ["setpriv", "--pdeathsig", "TERM"]
    return [*prefix, "prlimit", *bounds] if bounds else prefix


def _group_members(group: int) -> list[int]:
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.getpgid(int(entry.name)) == group:
                    members.append(int(entry.name))
    return members


def _runs(pid: int) -> bool:
    """Return whether any thread of the process still runs."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            if stat.read_text().rpartition(")")[2].split()[0] not in "ZX":
                return True
    return False


def _cpu_of(pid: int) -> float:
    """Return CPU seconds from the scheduler's count in nanoseconds."""
    total_ns = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):
            total_ns += int(task.read_text().split()[0])
    return total_ns / 1e9
