"""The parent while the server runs: signals in, channel_ to the workers, and its end.

Greenlets: one reads signals, one per worker keeps it running, one accepts per listening socket,
those of the control socket and of the metrics, and those of the dispatcher, if there are several
workers. Must not know the command line or the core.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import AsyncResult

from beanstalkd_py import errors
from beanstalkd_py.plural import counted
from beanstalkd_py.server.accept.acceptor import Acceptor, Receiver
from beanstalkd_py.server.accept.admission import Admission
from beanstalkd_py.server.accept.dispatch import Dispatcher
from beanstalkd_py.server.accept.handover import RESERVED_DESCRIPTORS, Handover
from beanstalkd_py.server.accept.listeners import Sockets
from beanstalkd_py.server.archiver.archiver_supervisor import ArchiverSupervisor
from beanstalkd_py.server.control.admin_commands import AdminCommands
from beanstalkd_py.server.control.control_server import ControlServer
from beanstalkd_py.server.logging.lines import NOTICE
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.options import NS_PER_S, ServeOptions
from beanstalkd_py.server.parent.ready_line import ready_line
from beanstalkd_py.server.parent.reload import Changes, Reloader
from beanstalkd_py.server.parent.systemd_notify import Notifier
from beanstalkd_py.server.parent.watchdog import Watchdog
from beanstalkd_py.server.parent.worker_supervisor import Start, WorkerSupervisor
from beanstalkd_py.server.process.exit_status import EXIT_OK
from beanstalkd_py.server.process.fd_wait import FdWatcher
from beanstalkd_py.server.process.launch import ChildProcess
from beanstalkd_py.server.process.shared_memory import SharedMemory
from beanstalkd_py.server.process.signals import SignalPipe
from beanstalkd_py.server.stats.stats_reply import ServerInfo
from beanstalkd_py.server.stats.worker_stats import Component
from beanstalkd_py.server.tls.certificates import Certificates, read_certificates
from beanstalkd_py.server.tls.tls_supervisor import TLS_FULL, TlsSupervisor

if TYPE_CHECKING:
    from beanstalkd_py.server.metrics.http_server import MetricsServer

START_NEWS_S = 10.0
"""The service manager hears so often that a start goes on."""
STATUS_S = 1.0
"""Between two checks for components that keep restarting."""
PREPARE_S = 1.0
"""Until the modules that parse options are imported, so that no import delays first clients."""


class ParentLoop:
    """The workers, and the sockets whose connections they serve.

    `start` starts a worker anew; a single one is not, because then the server may as well leave
    with its status and say so to the service manager. `descriptors` is the RLIMIT_NOFILE of all
    processes, `facts` what metrics tell of this start.
    """

    def __init__(
        self,
        sockets: Sockets,
        workers: list[ChildProcess],
        start: Start,
        shared: SharedMemory,
        signals: SignalPipe,
        descriptors: int,
        reloader: Reloader,
        notifier: Notifier,
        facts: ServerInfo,
        tls: TlsSupervisor | None = None,
        archiver: ArchiverSupervisor | None = None,
        prepare_reread: Callable[[], None] = lambda: None,
    ) -> None:
        self._end: AsyncResult[int] = AsyncResult()
        self._sockets = sockets
        self._shared = shared
        self._signals = signals
        self._descriptors = descriptors
        self._reloader = reloader
        several = len(workers) > 1
        self._keepers = [
            WorkerSupervisor(self, worker, start if several else None) for worker in workers
        ]
        self._dispatcher = self._new_dispatcher() if several else None
        self._single: Handover | None = None
        self._gate = Admission(reloader.options, self._connections, shared.parent)
        self._acceptors: list[gevent.Greenlet[[], None]] = []
        self._kept = len(workers)
        self._accepting = False
        self._stopping = False
        self._status = EXIT_OK
        self._notifier = notifier
        self._tls = tls
        self._archiver = archiver
        self._certificates: Certificates | None = None
        self._prepare_reread = prepare_reread
        self._watchdog = self._new_watchdog()
        self._control = self._new_control()
        self._metrics = self._new_metrics(facts)

    def run(self) -> int:
        """Supervises until all workers have ended; the exit status of the server."""
        self._shared.parent.pid = os.getpid()
        self._spawn(self._follow_signals)
        for keeper in self._keepers:
            self._note_pid(keeper)
            self._spawn(partial(self._keep, keeper))
        if self._control is not None:
            self._spawn(self._control.run)
        if self._metrics is not None:
            self._metrics.start()
        if self._tls is not None:
            self._spawn(self._tls.run)
        if self._archiver is not None:
            self._spawn(self._archiver.run)
        self._spawn(self._tell_start)
        self._spawn(self._tell_changes)
        try:
            return self._end.get() or EXIT_OK
        finally:
            self._stop_accepting()
            if self._tls is not None:
                self._tls.stop()
            if self._archiver is not None:
                self._archiver.stop()
            if self._control is not None:
                self._control.close()
            if self._metrics is not None:
                self._metrics.close()

    def _spawn(self, task: Callable[[], None]) -> gevent.Greenlet[[], None]:
        """An error in a task is an error of the whole: the link carries it to `run`."""
        greenlet = gevent.spawn(task)
        greenlet.link_exception(self._end)
        return greenlet

    # --- signals ------------------------------------------------------------------------------

    def _follow_signals(self) -> None:
        ready = FdWatcher(self._signals.fileno())
        while True:
            ready.wait()
            received = self._signals.take()
            if signal.SIGUSR1 in received:
                LOGGER.info("draining: puts are refused from now on")
                self._shared.draining = True
                self.tell_status()
            if signal.SIGHUP in received and not self._stopping:
                self._heed_hangup()
            if received & {signal.SIGTERM, signal.SIGINT} and not self._stopping:
                LOGGER.info("stopping")
                self._stop()

    def _heed_hangup(self) -> None:
        try:
            self.reload()
        except errors.UsageError as error:
            LOGGER.error("reload: %s; nothing has changed", error)

    def _prepare_reload(self) -> None:
        gevent.sleep(PREPARE_S)
        self._prepare_reread()

    def reload(self) -> Changes:
        """Reads the options again; what can change does. Raises UsageError."""
        self._notifier.reloading()
        try:
            return self._reloader.reload(self._tell_options, self._check)
        finally:
            self._notifier.ready(self._status_text())

    def _check(self, options: ServeOptions) -> None:
        """Reads the certificates before anything changes: they may be wrong.

        The same files as before may be out of reach since the user was given up, and then those
        that are in force stay. Raises UsageError.
        """
        self._certificates = None
        if self._tls is None:
            return
        try:
            self._certificates = read_certificates(options)
        except errors.UnreadableError as error:
            if _files_of(options) != _files_of(self._reloader.options):
                raise
            LOGGER.error("reload: %s; the certificates that are in force stay", error)

    def _tell_options(self, options: ServeOptions) -> None:
        for keeper in self._keepers:
            keeper.change(options)
        self._gate.change(options)
        if self._tls is not None:
            self._tls.change(self._certificates, options.verbosity, options.log_format)
        if self._archiver is not None:
            self._archiver.change(options)
        if self._dispatcher is not None:
            _limit(self._dispatcher, options)

    def _connections(self) -> int:
        """How many there are, whoever has them now."""
        handshakes = self._tls.load() if self._tls is not None else 0
        if self._single is not None:
            return handshakes + self._single.load()
        return handshakes + self._shared.connections_of_parent()

    def _stop(self) -> None:
        self._stopping = True
        self._notifier.stopping()
        self._stop_accepting()
        for keeper in self._keepers:
            keeper.stop()

    # --- the service manager ------------------------------------------------------------------

    def _tell_start(self) -> None:
        while not self._accepting and not self._stopping:
            self._notifier.starting(self._status_text())
            gevent.sleep(START_NEWS_S)

    def _tell_changes(self) -> None:
        """A component that keeps restarting changes the status at no event of the workers."""
        told = ""
        while True:
            gevent.sleep(STATUS_S)
            now = ", ".join(self._restarting())
            if now != told:
                self.tell_status()
            told = now

    def tell_status(self) -> None:
        """For whoever asks the service manager what the server does."""
        if self._accepting and not self._stopping:
            self._notifier.status(self._status_text())

    def _status_text(self) -> str:
        ready, count = sum(one.ready for one in self._keepers), len(self._keepers)
        workers = counted(count, "worker")
        if not self._accepting:
            return f"starting: {ready} of {workers} ready, the others read their binlogs"
        doing = "draining" if self._shared.draining else "serving"
        missing = f"; {count - ready} being replaced" if ready < count else ""
        failing = "".join(f"; {name} keeps restarting" for name in self._restarting())
        return f"{doing} with {ready} of {workers}{missing}{failing}"

    def components(self) -> list[Component]:
        """Every process that is started again when it ends."""
        keepers = [*self._keepers, self._tls, self._archiver]
        return [keeper.component for keeper in keepers if keeper is not None]

    def _restarting(self) -> list[str]:
        return [one.name for one in self.components() if one.keeps_restarting]

    def readiness(self) -> tuple[bool, str]:
        """Whether all workers serve and no component keeps restarting; what the server does."""
        if self._stopping:
            return False, "stopping"
        serving = self._accepting and all(one.ready for one in self._keepers)
        return serving and not self._restarting(), self._status_text()

    def _new_watchdog(self) -> Watchdog | None:
        if not self._notifier.watchdog_s:
            return None
        single = self._keepers[0].ping if len(self._keepers) == 1 else None
        return Watchdog(self._notifier.watchdog_s, self._notifier.alive, single)

    # --- connections --------------------------------------------------------------------------

    def _start_accepting(self, receiver: Receiver) -> None:
        self._accepting = True
        for listener in self._sockets.clients:
            self._acceptors.append(self._spawn(Acceptor(listener, receiver, self._gate).run))

        if self._tls is not None and self._sockets.tls is not None:
            self._tls.serve(receiver)
            acceptor = Acceptor(self._sockets.tls, self._tls, self._gate, TLS_FULL)
            self._acceptors.append(self._spawn(partial(_accept_tls, self._tls, acceptor)))

    def _stop_accepting(self) -> None:
        gevent.killall(self._acceptors)
        self._acceptors.clear()
        for listener in (*self._sockets.clients, self._sockets.tls):
            if listener is not None:
                listener.close()
        dispatcher, self._dispatcher = self._dispatcher, None
        if dispatcher is not None:
            dispatcher.close()

    def _new_dispatcher(self) -> Dispatcher:
        count = len(self._keepers)
        # Two ways to each worker are open here.
        capacity = self._descriptors - RESERVED_DESCRIPTORS - 2 * count
        parent = self._shared.parent
        colocate = self._reloader.options.colocate
        dispatcher = Dispatcher(count, colocate, parent, capacity, self._spawn)
        _limit(dispatcher, self._reloader.options)
        return dispatcher

    def _handover_to(self, index: int, worker: ChildProcess) -> Handover:
        return Handover(worker.connections, self._shared.counters(index), self._worker_room())

    def _worker_room(self) -> int:
        """How many connections a worker can have: a way to each peer is open there."""
        return self._descriptors - RESERVED_DESCRIPTORS - (len(self._keepers) - 1)

    def _new_control(self) -> ControlServer | None:
        if self._sockets.control is None:
            return None
        administration = AdminCommands(
            *(self._keepers, self._shared, self, self._reloader.options.colocate),
            self._history_status(),
        )
        return ControlServer(self._sockets.control, administration.requests())

    def _new_metrics(self, facts: ServerInfo) -> MetricsServer | None:
        listener = self._sockets.metrics
        if listener is None:
            return None
        # A heavy import, and only for those who want it.
        from beanstalkd_py.server.parent.metrics_endpoint import metrics_server

        return metrics_server(
            *(listener, facts, self._reloader, self._shared, self._keepers),
            *(self._worker_room(), self.readiness, self.components, self._history_status()),
        )

    def _history_status(self) -> Callable[[], dict[str, Any]] | None:
        return self._archiver.status if self._archiver is not None else None

    # --- workers ------------------------------------------------------------------------------

    def _keep(self, keeper: WorkerSupervisor) -> None:
        status = keeper.run()
        self._kept -= 1
        self._status = self._status or status
        if self._kept == 0:
            self._end.set(self._status)
        elif not self._stopping:
            self._stop()

    def worker_ready(self, keeper: WorkerSupervisor) -> None:
        """It gets connections; all get them from the moment when the last one is ready."""
        if self._stopping or keeper.process is None:
            return
        keeper.change(self._reloader.options)  # they may have changed while it started
        handover = self._handover_to(keeper.index, keeper.process)
        if self._dispatcher is not None:
            self._dispatcher.attach(keeper.index, handover)
        if self._accepting:
            self.tell_status()
        elif all(one.was_ready for one in self._keepers):
            self._single = handover if self._dispatcher is None else None
            self._start_accepting(self._dispatcher or handover)
            self._notifier.ready(self._status_text())
            options = self._reloader.options
            LOGGER.log(NOTICE, "%s", ready_line(options, self._sockets, len(self._keepers)))
            if self._watchdog is not None:
                self._spawn(self._watchdog.run)
            self._spawn(self._prepare_reload)

    def worker_ended(self, keeper: WorkerSupervisor) -> None:
        """What it held is gone, and the counters say so."""
        passed = None if self._dispatcher is None else self._dispatcher.detach(keeper.index)
        if passed is not None:
            # Some may never have reached it; they have ended as well.
            self._shared.counters(keeper.index).total_connections = passed
        comes_back = self._reloader.options.binlog_dir is not None
        self._shared.settle(keeper.index, comes_back)
        self.tell_status()

    def worker_started(self, keeper: WorkerSupervisor) -> None:
        """It is introduced to all that run."""
        self._note_pid(keeper)
        for other in self._keepers:
            if other is not keeper:
                keeper.introduce_to(other)

    def worker_answered(self, keeper: WorkerSupervisor) -> None:
        """A single one is asked for the watchdog's sake."""
        if self._watchdog is not None:
            self._watchdog.answered()

    def _note_pid(self, keeper: WorkerSupervisor) -> None:
        if keeper.process is not None:
            self._shared.counters(keeper.index).pid = keeper.process.pid


def _accept_tls(tls: TlsSupervisor, acceptor: Acceptor) -> None:
    tls.wait_until_ready()
    acceptor.run()


def _limit(dispatcher: Dispatcher, options: ServeOptions) -> None:
    dispatcher.limit(options.idle_timeout_ns / NS_PER_S, options.send_timeout_ns / NS_PER_S)


def _files_of(options: ServeOptions) -> tuple[str | None, ...]:
    return options.tls_cert, options.tls_key, options.tls_ca
