"""Starts a child process: a fresh interpreter, three descriptors, then its configuration.

The parent runs an event loop, so it must not fork without exec.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from beanstalkd_py import errors
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_ERROR, EXIT_SIGNAL_BASE

if TYPE_CHECKING:
    from beanstalkd_py.server.process.messages import ProcessConfig

ENTRY_POINT = "beanstalkd_py.server.entry_point"
WORKER_MODULE = "beanstalkd_py.server.worker.process"
TLS_MODULE = "beanstalkd_py.server.tls.process"
ARCHIVER_MODULE = "beanstalkd_py.server.archiver.process"
CONSOLE_MODULE = "beanstalkd_py.server.console.process"
REPLICATOR_MODULE = "beanstalkd_py.server.replicator.process"
PARENT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
SYSTEMD_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
EXIT_POLL_S = 0.002
HUGE_PAGES = "glibc.malloc.hugetlb=1"
"""A worker's GLIBC_TUNABLES: pages of 2 MiB if the kernel allows them on request (`madvise`).

They save 11% of the CPU time of reserves from a million jobs of random priority.
"""


@dataclass(frozen=True, slots=True)
class ChildProcess:
    """The parent's handle of a child process. `index` numbers the processes of a module from 0."""

    index: int
    pid: int
    channel: channel.Channel
    connections: socket.socket

    def poll(self) -> int | None:
        """Reap the process; return its exit status, 128 + signal if killed, None if it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return None
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else EXIT_SIGNAL_BASE - code

    def wait(self, limit_s: float = float("inf")) -> int:
        """Return the exit status; kill the process if it has not ended within the limit."""
        import gevent

        deadline_mono = time.monotonic() + limit_s
        while (status := self.poll()) is None:
            if time.monotonic() > deadline_mono:
                self.kill()
            gevent.sleep(EXIT_POLL_S)
        return status

    def kill(self) -> None:
        """Send SIGKILL. Safe until the process has been reaped."""
        os.kill(self.pid, signal.SIGKILL)

    def send_peer(self, peer: int, end: socket.socket) -> bool:
        """Send a worker its end of a socket pair with the worker `peer`, and close it here.

        The parent keeps neither end, so that a worker's link closes when its peer ends. Returns
        False if the worker is gone or does not read its channel. Raises OSError if too many
        descriptors are in flight.
        """
        with end:
            return self.channel.send(channel.PEER, peer, fd=end.fileno())

    def close(self) -> None:
        self.channel.close()
        self.connections.close()


def start_process(
    module: str, config: ProcessConfig, shared_fd: int, spawned: ChildProcess | None = None
) -> ChildProcess:
    """Start and configure a process, or configure a spawned one. Raises WorkerError."""
    process = spawned or spawn(module, config.index, shared_fd)
    process.channel.send(channel.CONFIGURE, config.encode())
    return process


def spawn(module: str, index: int, shared_fd: int) -> ChildProcess:
    """Start a process without a configuration. Raises WorkerError."""
    ends: list[socket.socket] = []
    try:
        for _ in range(2):
            ends += channel.channel_pair()
        ours, theirs, passing, adopting = ends
        pid = _execute(module, theirs.fileno(), adopting.fileno(), shared_fd)
    except OSError as error:
        for end in ends:
            end.close()
        text = f"cannot start a process with {sys.executable}: {error.strerror}"
        raise errors.WorkerError(text, EXIT_ERROR) from error
    theirs.close()
    adopting.close()
    passing.setblocking(False)
    # A worker does not read its channel while it recovers; the parent must not wait for it.
    ours.setblocking(False)
    return ChildProcess(index, pid, channel.Channel(ours), passing)


def _execute(module: str, channel_fd: int, connections_fd: int, shared_fd: int) -> int:
    descriptors = (channel_fd, connections_fd, shared_fd)
    command = [sys.executable, *_path_flags(), "-m", ENTRY_POINT, module, *map(str, descriptors)]
    environment = {k: v for k, v in os.environ.items() if k not in SYSTEMD_VARIABLES}
    if module == WORKER_MODULE:
        environment.setdefault("GLIBC_TUNABLES", HUGE_PAGES)
    for fd in descriptors:
        os.set_inheritable(fd, True)
    # Block signals from the first instruction on, because Ctrl-C reaches the whole process group.
    pid = os.posix_spawn(sys.executable, command, environment, setsigmask=PARENT_SIGNALS)
    os.set_inheritable(shared_fd, False)
    return pid


def _path_flags() -> list[str]:
    """Return -P unless the parent runs from a source tree.

    `-m` would put the current folder first on sys.path, where any file can shadow a module.
    """
    root = os.path.realpath(__file__).rpartition("/beanstalkd_py/")[0]  # pathlib is a slow import
    from_tree = not sys.flags.safe_path and bool(sys.path) and sys.path[0] == root
    return [] if from_tree else ["-P"]
