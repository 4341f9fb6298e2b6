"""The parent while the server runs: signals in, orders to the workers, and its end.

Greenlets: one reads signals, one per worker keeps it running, one accepts per listening socket,
and those of the dispatcher, if there are several workers. Must not know the command line or the
core.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial

import gevent
from gevent.event import AsyncResult

from beanstalkd_py.server.acceptor import Acceptor, Receiver
from beanstalkd_py.server.dispatch import Dispatcher
from beanstalkd_py.server.exits import EXIT_OK
from beanstalkd_py.server.handover import RESERVED_DESCRIPTORS, Handover
from beanstalkd_py.server.keeper import Keeper, Start
from beanstalkd_py.server.launch import WorkerProcess
from beanstalkd_py.server.listeners import Listener
from beanstalkd_py.server.logs import LOGGER
from beanstalkd_py.server.shared import SharedMemory
from beanstalkd_py.server.signals import SignalPipe
from beanstalkd_py.server.waiting import Readiness


class Supervisor:
    """The workers, and the sockets whose connections they serve.

    `start` starts a worker anew; a single one is not, because then the server may as well leave
    with its status and say so to the service manager. `descriptors` is the RLIMIT_NOFILE of all
    processes. `colocate` is as in ServeOptions.
    """

    def __init__(
        self,
        listeners: list[Listener],
        workers: list[WorkerProcess],
        start: Start,
        shared: SharedMemory,
        signals: SignalPipe,
        descriptors: int,
        colocate: bytes | None = None,
    ) -> None:
        self._end: AsyncResult[int] = AsyncResult()
        self._listeners = listeners
        self._shared = shared
        self._signals = signals
        self._descriptors = descriptors
        self._colocate = colocate
        several = len(workers) > 1
        self._keepers = [Keeper(self, worker, start if several else None) for worker in workers]
        self._dispatcher = self._new_dispatcher() if several else None
        self._acceptors: list[gevent.Greenlet[[], None]] = []
        self._kept = len(workers)
        self._accepting = False
        self._stopping = False
        self._status = EXIT_OK

    def run(self) -> int:
        """Supervises until all workers have ended; the exit status of the server."""
        self._shared.parent.pid = os.getpid()
        self._spawn(self._follow_signals)
        for keeper in self._keepers:
            self._note_pid(keeper)
            self._spawn(partial(self._keep, keeper))
        try:
            return self._end.get() or EXIT_OK
        finally:
            self._stop_accepting()

    def _spawn(self, task: Callable[[], None]) -> gevent.Greenlet[[], None]:
        """An error in a task is an error of the whole: the link carries it to `run`."""
        greenlet = gevent.spawn(task)
        greenlet.link_exception(self._end)
        return greenlet

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
                LOGGER.info("stopping")
                self._stop()

    def _stop(self) -> None:
        self._stopping = True
        self._stop_accepting()
        for keeper in self._keepers:
            keeper.stop()

    # --- connections --------------------------------------------------------------------------

    def _start_accepting(self, receiver: Receiver) -> None:
        self._accepting = True
        for listener in self._listeners:
            self._acceptors.append(self._spawn(Acceptor(listener, receiver).run))

    def _stop_accepting(self) -> None:
        gevent.killall(self._acceptors)
        self._acceptors.clear()
        for listener in self._listeners:
            listener.close()
        dispatcher, self._dispatcher = self._dispatcher, None
        if dispatcher is not None:
            dispatcher.close()

    def _new_dispatcher(self) -> Dispatcher:
        count = len(self._keepers)
        # Two ways to each worker are open here.
        capacity = self._descriptors - RESERVED_DESCRIPTORS - 2 * count
        parent = self._shared.parent
        return Dispatcher(count, self._colocate, parent, capacity, self._spawn)

    def _handover_to(self, index: int, worker: WorkerProcess) -> Handover:
        # A way to each peer is open there.
        capacity = self._descriptors - RESERVED_DESCRIPTORS - (len(self._keepers) - 1)
        return Handover(worker.connections, self._shared.counters(index), capacity)

    # --- workers ------------------------------------------------------------------------------

    def _keep(self, keeper: Keeper) -> None:
        status = keeper.run()
        self._kept -= 1
        self._status = self._status or status
        if self._kept == 0:
            self._end.set(self._status)
        elif not self._stopping:
            self._stop()

    def worker_ready(self, keeper: Keeper) -> None:
        """It gets connections; all get them from the moment when the last one is ready."""
        if self._stopping or keeper.process is None:
            return
        handover = self._handover_to(keeper.index, keeper.process)
        if self._dispatcher is not None:
            self._dispatcher.attach(keeper.index, handover)
        if not self._accepting and all(one.was_ready for one in self._keepers):
            self._start_accepting(self._dispatcher or handover)

    def worker_ended(self, keeper: Keeper) -> None:
        """What it held is gone, and the counters say so."""
        passed = None if self._dispatcher is None else self._dispatcher.detach(keeper.index)
        if passed is not None:
            # Some may never have reached it; they have ended as well.
            self._shared.counters(keeper.index).total_connections = passed
        self._shared.settle(keeper.index)

    def worker_started(self, keeper: Keeper) -> None:
        """It is introduced to all that run."""
        self._note_pid(keeper)
        for other in self._keepers:
            if other is not keeper:
                keeper.introduce_to(other)

    def _note_pid(self, keeper: Keeper) -> None:
        if keeper.process is not None:
            self._shared.counters(keeper.index).pid = keeper.process.pid
