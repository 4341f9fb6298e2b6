"""The parent of a standby: it waits until the replicator has made this server the primary.

The replicator forwards clients until then. The workers read what it copies, so that they have all
jobs in memory.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import gevent
from gevent.select import select

from beanstalkd_py import errors
from beanstalkd_py.server.archiver.archiver_supervisor import ArchiverSupervisor
from beanstalkd_py.server.archiver.backlog_limit import BacklogLimit
from beanstalkd_py.server.control.control_server import ControlServer
from beanstalkd_py.server.logging.lines import NOTICE
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_ERROR
from beanstalkd_py.server.process.launch import (
    ARCHIVER_MODULE,
    REPLICATOR_MODULE,
    WORKER_MODULE,
    ChildProcess,
    start_process,
)
from beanstalkd_py.server.process.messages import ReplicatorStatus

if TYPE_CHECKING:
    from beanstalkd_py.server.parent.start import ServerSetup

WAIT_S = 1.0
SILENT_S = 60.0
"""As the heartbeat's limit of a primary's replicator; here no event loop runs a heartbeat."""
STOP_S = 10.0


@dataclass(slots=True)
class Replication:
    """The processes of a standby, and the eventfds of each worker's replica.

    The parent owns the eventfds.
    """

    process: ChildProcess
    offered: list[int]
    stored: list[int]
    workers: list[ChildProcess] = field(default_factory=list)
    archiver: ArchiverSupervisor | None = None

    def send_events(self, worker: ChildProcess) -> None:
        """Send a worker its eventfds."""
        for name, events in ((channel.OFFERED, self.offered), (channel.STORED, self.stored)):
            worker.channel.send(name, worker.index, fd=events[worker.index])


def stand_by(setup: ServerSetup, shared_fd: int) -> Replication | None:
    """Start the replicator, and return it when this server is the primary; None after a stop.

    Raises WorkerError if it or a worker ends.
    """
    standby = _Standby(setup, shared_fd)
    try:
        with standby.observed():
            is_primary = standby.run()
    except BaseException:
        standby.stop()
        raise
    if is_primary:
        return standby.replication
    standby.stop()
    return None


class _Standby:
    def __init__(self, setup: ServerSetup, shared_fd: int) -> None:
        self._setup = setup
        self._shared_fd = shared_fd
        self.replication = _start(setup, shared_fd)
        self._status = ReplicatorStatus()
        self._status_text = "starting"
        self._reported_mono = time.monotonic()

    @contextlib.contextmanager
    def observed(self) -> Iterator[None]:
        """Serve metrics, and refuse requests on the control socket."""
        sockets, stack = self._setup.sockets, contextlib.ExitStack()
        with stack:
            if sockets.control is not None:
                control = ControlServer(sockets.control, {}, self._refusal)
                accepting = gevent.spawn(control.run)
                stack.callback(control.stop)
                stack.callback(accepting.kill)
            if sockets.metrics is not None:
                # prometheus_client is slow to import.
                from beanstalkd_py.server.metrics.http_server import MetricsServer
                from beanstalkd_py.server.metrics.replication_metrics import replication_metrics

                metrics = MetricsServer(
                    sockets.metrics,
                    lambda: replication_metrics(self._status),
                    lambda: (bool(self._status.primary), self._status_text),
                )
                metrics.start()
                stack.callback(metrics.stop)
            yield

    def _refusal(self, request: object) -> str:
        primary = self._status.primary or "which is not known now"
        return f"this server is a standby; ask the primary, {primary}"

    def run(self) -> bool:
        """Return whether this server is the primary, rather than stopped. Raises WorkerError."""
        replicator, workers = self.replication.process, self.replication.workers
        replicator_fd, signals_fd = replicator.channel.fileno(), self._setup.signals.fileno()
        watchdog_s = self._setup.notifier.watchdog_s
        wait_s = min(WAIT_S, watchdog_s / 4) if watchdog_s else WAIT_S
        while True:
            channels = [worker.channel.fileno() for worker in workers]
            waited = [replicator_fd, signals_fd, *channels]
            readable = select(waited, [], [], wait_s)[0]
            self._setup.notifier.alive()
            if signals_fd in readable and _is_stop(self._setup.signals.take()):
                LOGGER.info("stopping")
                self._setup.notifier.stopping()
                return False
            for worker, fd in zip(workers, channels, strict=True):
                if fd in readable:
                    self._fail(f"worker {worker.index}", worker.channel.receive())
            if replicator_fd in readable:
                self._reported_mono = time.monotonic()
                if self._handle(replicator.channel.receive()):
                    return True
            elif time.monotonic() - self._reported_mono > SILENT_S:
                LOGGER.error("the replicator has not reported for %d s; killing it", SILENT_S)
                replicator.kill()

    def _handle(self, message: channel.Message | None) -> bool:
        """Handle a message of the replicator; return whether this server is the primary."""
        match message:
            case [channel.READY]:
                LOGGER.log(NOTICE, "standing by for %s", self._setup.options.replicate)
                self._setup.notifier.ready("standing by")
                self._start_workers()
                if self._setup.options.history is not None:
                    self.replication.archiver = self._start_archiver()
            case [channel.STATUS, dict(values)]:
                self._status = ReplicatorStatus(**values)
                text = _status_text(self._status)
                if text != self._status_text:  # also while it waits for the log before it is ready
                    self._setup.notifier.status(text)
                    self._status_text = text
            case [channel.PRIMARY]:
                return True
            case _:
                self._fail("the replicator", message)
        return False

    def _start_workers(self) -> None:
        for number in range(self._setup.options.workers):
            config = self._setup.config(WORKER_MODULE, number)
            worker = start_process(WORKER_MODULE, config, self._shared_fd)
            self.replication.workers.append(worker)
            self.replication.send_events(worker)

    def _start_archiver(self) -> ArchiverSupervisor:
        """Start the archiver of this server, also for the time when it is the primary."""
        setup, options = self._setup, self._setup.options

        def start() -> ChildProcess:
            config = setup.config(ARCHIVER_MODULE, 0)
            return start_process(ARCHIVER_MODULE, config, self._shared_fd)

        def is_refusing(worker: int) -> bool:
            """Return true, because a copy without space ends this server."""
            return True

        folders = map(Path, setup.folder_paths)
        limit = BacklogLimit(folders, options.history_backlog, options.file_size, is_refusing)
        archiver = ArchiverSupervisor(start, limit)
        archiver.run_in_background()
        return archiver

    def _fail(self, name: str, message: channel.Message | None) -> None:
        """Raise the error of a process that has ended, or is about to."""
        match message:
            case [channel.FAILED, int(code), str(text)]:
                raise errors.WorkerError(text, code)
            case None:
                raise errors.WorkerError(f"{name} ended unexpectedly", EXIT_ERROR)

    def stop(self) -> None:
        """Stop all processes. Workers have changed nothing, so they are killed."""
        for worker in self.replication.workers:
            worker.kill()
            os.waitpid(worker.pid, 0)
            worker.close()
        _stop(self.replication.process)
        if self.replication.archiver is not None:
            self.replication.archiver.stop()


def _start(setup: ServerSetup, shared_fd: int) -> Replication:
    count = setup.options.workers
    process = start_process(REPLICATOR_MODULE, setup.config(REPLICATOR_MODULE, 0), shared_fd)
    flags = os.EFD_NONBLOCK | os.EFD_CLOEXEC
    offered = [os.eventfd(0, flags) for _ in range(count)]
    stored = [os.eventfd(0, flags) for _ in range(count)]
    replication = Replication(process, offered, stored)
    for listener in setup.sockets.clients:
        process.channel.send(channel.LISTENER, False, fd=listener.socket.fileno())
    if setup.sockets.tls is not None:
        process.channel.send(channel.LISTENER, True, fd=setup.sockets.tls.socket.fileno())
    for worker in range(count):
        process.channel.send(channel.OFFERED, worker, fd=offered[worker])
        process.channel.send(channel.STORED, worker, fd=stored[worker])
    process.channel.send(channel.BEGIN)
    return replication


def _is_stop(received: set[signal.Signals]) -> bool:
    if received & {signal.SIGTERM, signal.SIGINT}:
        return True
    LOGGER.warning("a standby has nothing to reload or to drain; it reads options at its start")
    return False


def _stop(process: ChildProcess) -> None:
    """Stop the replicator, and kill it if it does not end."""
    process.channel.send(channel.STOP)
    if not select([process.channel], [], [], STOP_S)[0]:
        process.kill()
    while process.channel.receive() is not None:
        select([process.channel], [], [], STOP_S)
    process.close()
    os.waitpid(process.pid, 0)


def _status_text(status: ReplicatorStatus) -> str:
    parts = [f"standing by for {status.primary}" if status.primary else "standing by"]
    if status.behind:
        parts.append(f"{status.behind} messages behind")
    if status.unavailable:
        parts.append(f"the replicated log is not available: {status.unavailable}")
    return "; ".join(parts)
