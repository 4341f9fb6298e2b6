"""The parent of a standby: it waits until the replicator has made this server the primary.

There are no workers and no event loop until then; the replicator answers clients.
"""

from __future__ import annotations

import os
import select
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from beanstalkd_py import errors
from beanstalkd_py.server.logging.lines import NOTICE
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_ERROR
from beanstalkd_py.server.process.launch import REPLICATOR_MODULE, ChildProcess, start_process
from beanstalkd_py.server.process.messages import ReplicatorStatus

if TYPE_CHECKING:
    from beanstalkd_py.server.parent.start import ServerSetup

WAIT_S = 1.0
SILENT_S = 60.0
"""As the heartbeat's limit of a primary's replicator; here no event loop runs a heartbeat."""
STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class Replication:
    """The replicator, and the eventfds of each worker's replica, which the parent owns."""

    process: ChildProcess
    offered: list[int]
    stored: list[int]

    def send_events(self, worker: ChildProcess) -> None:
        """Send a worker its eventfds, before it recovers."""
        for name, events in ((channel.OFFERED, self.offered), (channel.STORED, self.stored)):
            worker.channel.send(name, worker.index, fd=events[worker.index])


def stand_by(setup: ServerSetup, shared_fd: int) -> Replication | None:
    """Start the replicator, and return it when this server is the primary; None after a stop.

    Raises WorkerError if it ends.
    """
    replication = _start(setup, shared_fd)
    process = replication.process
    watchdog_s = setup.notifier.watchdog_s
    wait_s = min(WAIT_S, watchdog_s / 4) if watchdog_s else WAIT_S
    status = ""
    reported_mono = time.monotonic()
    while True:
        channel_fd, signals_fd = process.channel.fileno(), setup.signals.fileno()
        readable = select.select([channel_fd, signals_fd], [], [], wait_s)[0]
        setup.notifier.alive()
        if signals_fd in readable and _is_stop(setup.signals.take()):
            LOGGER.info("stopping")
            setup.notifier.stopping()
            _stop(process)
            return None
        if channel_fd not in readable:
            if time.monotonic() - reported_mono > SILENT_S:
                LOGGER.error("the replicator has not reported for %d s; killing it", SILENT_S)
                process.kill()
            continue
        reported_mono = time.monotonic()
        match process.channel.receive():
            case [channel.READY]:
                LOGGER.log(NOTICE, "standing by for %s", setup.options.replicate)
                setup.notifier.ready("standing by")
            case [channel.STATUS, dict(values)]:
                text = _status_text(ReplicatorStatus(**values))
                if text != status:  # also while it waits for the log before it is ready
                    setup.notifier.status(text)
                    status = text
            case [channel.PRIMARY]:
                return replication
            case [channel.FAILED, int(code), str(text)]:
                _stop(process)
                raise errors.WorkerError(text, code)
            case None:
                os.waitpid(process.pid, 0)
                raise errors.WorkerError("the replicator ended unexpectedly", EXIT_ERROR)


def _start(setup: ServerSetup, shared_fd: int) -> Replication:
    count = setup.options.workers
    process = start_process(REPLICATOR_MODULE, setup.config(REPLICATOR_MODULE, 0), shared_fd)
    flags = os.EFD_NONBLOCK | os.EFD_CLOEXEC
    offered = [os.eventfd(0, flags) for _ in range(count)]
    stored = [os.eventfd(0, flags) for _ in range(count)]
    replication = Replication(process, offered, stored)
    for listener in setup.sockets.clients:
        process.channel.send(channel.LISTENER, fd=listener.socket.fileno())
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
    if not select.select([process.channel], [], [], STOP_S)[0]:
        process.kill()
    while process.channel.receive() is not None:
        select.select([process.channel], [], [], STOP_S)
    process.close()
    os.waitpid(process.pid, 0)


def _status_text(status: ReplicatorStatus) -> str:
    parts = [f"standing by for {status.primary}" if status.primary else "standing by"]
    if status.behind:
        parts.append(f"{status.behind} messages behind")
    if status.unavailable:
        parts.append(f"the replicated log is not available: {status.unavailable}")
    return "; ".join(parts)
