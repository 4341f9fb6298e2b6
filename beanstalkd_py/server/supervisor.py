"""The parent while the server runs: signals in, orders to the worker, and its end.

Greenlets: one reads signals, one reads the worker's channel, one accepts per listening socket.
Whoever sees the end sets the exit status, and `run` returns it. Must not know the command line or
the core.
"""

from __future__ import annotations

import signal
import time

import gevent
from gevent.event import AsyncResult

from beanstalkd_py.server import channel
from beanstalkd_py.server.acceptor import Acceptor
from beanstalkd_py.server.exits import EXIT_ERROR, EXIT_OK, EXIT_SIGNAL_BASE
from beanstalkd_py.server.handover import Handover
from beanstalkd_py.server.launch import WorkerProcess
from beanstalkd_py.server.listeners import Listener
from beanstalkd_py.server.logs import LOGGER
from beanstalkd_py.server.shared import SharedMemory
from beanstalkd_py.server.signals import SignalPipe
from beanstalkd_py.server.waiting import Readiness

STOP_LIMIT_S = 60.0
"""A worker that cannot stop in this time is killed; what it acknowledged is on disk."""
REAP_LIMIT_S = 5.0
REAP_STEP_S = 0.002


class Supervisor:
    """One worker and the sockets whose connections it serves."""

    def __init__(
        self,
        listeners: list[Listener],
        worker: WorkerProcess,
        shared: SharedMemory,
        signals: SignalPipe,
        descriptors: int,
    ) -> None:
        self._listeners = listeners
        self._worker = worker
        self._shared = shared
        self._signals = signals
        self._descriptors = descriptors
        self._acceptors: list[gevent.Greenlet[[], None]] = []
        self._ready = False
        self._stopping = False
        self._failed_status: int | None = None
        self._end: AsyncResult[int] = AsyncResult()

    def run(self) -> int:
        """Supervises until the worker has ended; the exit status of the server."""
        for task in (self._follow_signals, self._follow_worker):
            # An error in a task is an error of the whole: the link carries it to `get`.
            gevent.spawn(task).link_exception(self._end)
        try:
            return self._end.get() or EXIT_OK
        finally:
            self._stop_accepting()

    # --- signals ------------------------------------------------------------------------------

    def _follow_signals(self) -> None:
        ready = Readiness(self._signals.fileno())
        while True:
            ready.wait()
            received = self._signals.take()
            if signal.SIGUSR1 in received:
                LOGGER.info("draining: puts are refused from now on")
                self._shared.drain()
            if received & {signal.SIGTERM, signal.SIGINT} and not self._stopping:
                self._stop()

    def _stop(self) -> None:
        LOGGER.info("stopping")
        self._stopping = True
        self._stop_accepting()
        if self._ready:
            self._worker.channel.send(channel.STOP)
            gevent.spawn_later(STOP_LIMIT_S, self._kill_slow_worker)
        else:
            # It is reading the binlog and does not listen. A kill leaves the folder as a crash
            # would, which the next start has to cope with anyway.
            self._worker.kill()

    def _kill_slow_worker(self) -> None:
        LOGGER.error("the worker has not stopped within %d s and is killed", STOP_LIMIT_S)
        self._worker.kill()

    # --- connections --------------------------------------------------------------------------

    def _start_accepting(self) -> None:
        worker = self._worker
        counters = self._shared.counters(worker.index)
        handover = Handover(worker.connections, counters, self._descriptors)
        for listener in self._listeners:
            task = gevent.spawn(Acceptor(listener, handover).run)
            task.link_exception(self._end)
            self._acceptors.append(task)

    def _stop_accepting(self) -> None:
        gevent.killall(self._acceptors)
        self._acceptors.clear()
        for listener in self._listeners:
            listener.close()

    # --- the worker ---------------------------------------------------------------------------

    def _follow_worker(self) -> None:
        ready = Readiness(self._worker.channel.fileno())
        while True:
            ready.wait()
            message = self._worker.channel.receive()
            if message is None:
                break
            self._heed(message)
        ready.close()
        self._end.set(self._verdict(self._reap()))

    def _heed(self, message: channel.Message) -> None:
        match message:
            case [channel.READY]:
                self._ready = True
                LOGGER.info("worker %d is ready", self._worker.index)
                if not self._stopping:
                    self._start_accepting()
            case [channel.FAILED, int(status), str(text)]:
                self._failed_status = status
                LOGGER.error("%s", text)
            case _:
                LOGGER.warning("worker %d sent an unknown message", self._worker.index)

    def _reap(self) -> int:
        """Waits for the end of a worker whose channel has closed; its exit status."""
        killed_after_mono = time.monotonic() + REAP_LIMIT_S
        while (status := self._worker.reap()) is None:
            if time.monotonic() > killed_after_mono:
                self._worker.kill()
            gevent.sleep(REAP_STEP_S)
        return status

    def _verdict(self, status: int) -> int:
        """The server's exit status for the worker's."""
        if self._failed_status is not None:
            return self._failed_status
        killed_at_start = status == EXIT_SIGNAL_BASE + signal.SIGKILL and not self._ready
        if self._stopping and (status == EXIT_OK or killed_at_start):
            return EXIT_OK
        LOGGER.error("worker %d (pid %d) %s", self._worker.index, self._worker.pid, _end_of(status))
        return status or EXIT_ERROR


def _end_of(status: int) -> str:
    if status > EXIT_SIGNAL_BASE:
        return f"was killed by signal {status - EXIT_SIGNAL_BASE}"
    return f"ended with status {status}"
