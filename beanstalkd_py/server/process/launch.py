"""Starts a process of the server: a fresh interpreter, three descriptors, then its configuration.

Fork without exec is out of the question, because the parent runs an event loop. Knows how a worker,
the process that speaks TLS, or the archiver is born and how its end reads, not what it does in
between.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from dataclasses import asdict, dataclass
from typing import Any

from beanstalkd_py import errors
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_ERROR, EXIT_SIGNAL_BASE

PROCESS_MODULE = "beanstalkd_py.server.entry_point"
WORKER_MODULE = "beanstalkd_py.server.worker.process"
TLS_MODULE = "beanstalkd_py.server.tls.process"
ARCHIVER_MODULE = "beanstalkd_py.server.archiver.process"
PARENT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
SYSTEMD_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What one worker is told at its start. Sizes are bytes, `started_mono` seconds.

    `limits` are those of ServeOptions.limits. With `history` the binlog has what an archiver needs.
    """

    worker: int
    parent_pid: int
    instance_id: str
    started_mono: float
    binlog_dir: bytes | None
    file_size: int
    sync_interval_ns: int
    max_job_size: int
    verbosity: int
    workers: int
    colocate: bytes | None
    limits: dict[str, int]
    log_format: str
    slow_ns: int
    history: bool = False

    def to_message(self) -> dict[str, Any]:
        """As it travels through the channel."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ChildProcess:
    """A running worker as its parent holds it; the other processes likewise, with -1."""

    index: int
    pid: int
    channel: channel.Channel
    connections: socket.socket

    def reap(self) -> int | None:
        """Its exit status if it has ended (128 + the signal's number if killed), else None."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return None
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else EXIT_SIGNAL_BASE - code

    def kill(self) -> None:
        """Ends it at once. Safe at any time until it has been reaped."""
        os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Gives up the ways to it."""
        self.channel.close()
        self.connections.close()


def spawn_worker(index: int, shared_fd: int) -> ChildProcess:
    """Starts a worker, which waits for its configuration. Raises WorkerError."""
    return _spawn(WORKER_MODULE, index, shared_fd)


def start_worker(
    config: WorkerConfig, shared_fd: int, spawned: ChildProcess | None = None
) -> ChildProcess:
    """Starts worker `config.worker`, or configures one that has been spawned.

    Raises WorkerError when the system refuses.
    """
    worker = spawn_worker(config.worker, shared_fd) if spawned is None else spawned
    worker.channel.send(channel.CONFIGURE, config.to_message())
    return worker


def start_tls(verbosity: int, log_format: str, shared_fd: int) -> ChildProcess:
    """Starts the process that speaks TLS. Raises WorkerError when the system refuses."""
    config = {"parent_pid": os.getpid(), "verbosity": verbosity, "log_format": log_format}
    return _start(TLS_MODULE, -1, config, shared_fd)


def start_archiver(folders: list[bytes], options: dict[str, Any], shared_fd: int) -> ChildProcess:
    """Starts the archiver of these folders; `options` are ServeOptions.for_archiver.

    Raises WorkerError when the system refuses.
    """
    config = {"parent_pid": os.getpid(), "folders": folders, **options}
    return _start(ARCHIVER_MODULE, -1, config, shared_fd)


def _start(module: str, index: int, config: dict[str, Any], shared_fd: int) -> ChildProcess:
    process = _spawn(module, index, shared_fd)
    process.channel.send(channel.CONFIGURE, config)
    return process


def _spawn(module: str, index: int, shared_fd: int) -> ChildProcess:
    ends: list[socket.socket] = []
    try:
        for _ in range(2):
            ends += channel.channel_pair()
        ours, theirs, passing, adopting = ends
        pid = _execute(module, theirs.fileno(), adopting.fileno(), shared_fd)
    except OSError as error:
        for end in ends:
            end.close()
        text = f"cannot start a worker ({sys.executable}): {error.strerror}"
        raise errors.WorkerError(text, EXIT_ERROR) from error
    theirs.close()
    adopting.close()
    passing.setblocking(False)
    worker = ChildProcess(index, pid, channel.Channel(ours), passing)
    # A worker that reads its binlog does not read its channel; nobody may wait for it.
    worker.channel.never_block()
    return worker


def _execute(module: str, channel_fd: int, connections_fd: int, shared_fd: int) -> int:
    descriptors = (channel_fd, connections_fd, shared_fd)
    command = [sys.executable, *_path_flags(), "-m", PROCESS_MODULE, module, *map(str, descriptors)]
    environment = {k: v for k, v in os.environ.items() if k not in SYSTEMD_VARIABLES}
    for fd in descriptors:
        os.set_inheritable(fd, True)
    # Blocked from the first instruction on: a Ctrl-C in the terminal reaches the whole group, and
    # the worker takes its channel_ from the channel.
    pid = os.posix_spawn(sys.executable, command, environment, setsigmask=PARENT_SIGNALS)
    os.set_inheritable(shared_fd, False)
    return pid


def _path_flags() -> list[str]:
    """Makes the worker import the package from where the parent got it.

    `-m` would put the current folder first, where a file may have the name of a module. That is
    wanted only if the parent itself was started that way, from a source tree.
    """
    root = os.path.realpath(__file__).rpartition("/beanstalkd_py/")[0]  # pathlib is a slow import
    from_tree = not sys.flags.safe_path and bool(sys.path) and sys.path[0] == root
    return [] if from_tree else ["-P"]
