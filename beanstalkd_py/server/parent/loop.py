"""The parent's event loop: signals, supervision, accepting, reload and the end of the server."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import AsyncResult

from beanstalkd_py import __version__, errors
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
from beanstalkd_py.server.option_changes import NS_PER_MS, Changes
from beanstalkd_py.server.options import NS_PER_S, SYNC_EACH, ServeOptions
from beanstalkd_py.server.parent.reload import Reloader
from beanstalkd_py.server.parent.systemd_notify import Notifier
from beanstalkd_py.server.parent.worker_supervisor import Start, WorkerSupervisor
from beanstalkd_py.server.process.exit_status import EXIT_OK
from beanstalkd_py.server.process.fd_wait import FdWatcher
from beanstalkd_py.server.process.launch import ChildProcess
from beanstalkd_py.server.process.messages import ProcessConfig
from beanstalkd_py.server.process.shared_memory import SharedMemory
from beanstalkd_py.server.process.signals import SignalPipe
from beanstalkd_py.server.stats.tube_stats import TubeStatsCache
from beanstalkd_py.server.stats.worker_stats import Component, WorkerStatus
from beanstalkd_py.server.tls.certificates import Certificates, read_certificates
from beanstalkd_py.server.tls.tls_supervisor import TLS_FULL, TlsSupervisor

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from beanstalkd_py.server.metrics.http_server import MetricsServer

START_PROGRESS_S = 10.0
STATUS_S = 1.0
"""Between two checks for components that keep restarting."""
PREPARE_S = 1.0
"""The delay before the import of the option parser, so that it does not delay first clients."""
KEEPALIVES_PER_WATCHDOG_LIMIT = 4


class Watchdog:
    """Sends keepalives to the service manager's watchdog.

    A heartbeat supervises several workers. `ping` is for a single worker, without one: the next
    keepalive then waits until the owner calls `answered`.
    """

    def __init__(
        self, limit_s: float, keepalive: Callable[[], None], ping: Callable[[], object] | None
    ) -> None:
        self._interval_s = limit_s / KEEPALIVES_PER_WATCHDOG_LIMIT
        self._keepalive = keepalive
        self._ping = ping
        self._unanswered = False

    def answered(self) -> None:
        self._unanswered = False

    def run(self) -> None:
        while True:
            if not self._unanswered:
                self._keepalive()
                if self._ping is not None:
                    self._unanswered = True
                    self._ping()
            gevent.sleep(self._interval_s)


class ParentLoop:
    """Supervises the workers and accepts their connections.

    `start` restarts a worker. A single worker is not restarted: the server ends with its status,
    and the service manager restarts the server. `descriptors` is the RLIMIT_NOFILE of all
    processes.
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
        config: ProcessConfig,
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
        restart = start if several else None
        self._workers = [WorkerSupervisor(self, worker, restart) for worker in workers]
        self._dispatcher = self._new_dispatcher() if several else None
        self._single: Handover | None = None
        self._admission = Admission(reloader.options, self._open_connections, shared.parent)
        self._acceptors: list[gevent.Greenlet[[], Any]] = []
        self._supervised = len(workers)
        self._accepting = False
        self._stopping = False
        self._status = EXIT_OK
        self._notifier = notifier
        self._tls = tls
        self._archiver = archiver
        self._certificates: Certificates | None = None
        self._prepare_reread = prepare_reread
        self._helpers = [one for one in (tls, archiver) if one is not None]
        self._watchdog = None
        if notifier.watchdog_s:
            ping = None if several else self._workers[0].ping
            self._watchdog = Watchdog(notifier.watchdog_s, notifier.alive, ping)
        self._control = self._new_control()
        self._metrics = self._new_metrics(config)

    def run(self) -> int:
        """Run until all workers have ended; return the exit status of the server."""
        self._shared.parent.pid = os.getpid()
        self._spawn(self._handle_signals)
        for worker in self._workers:
            self._shared.counters(worker.index).pid = worker.pid
            self._spawn(partial(self._supervise, worker))
        if self._control is not None:
            self._spawn(self._control.run)
        if self._metrics is not None:
            self._metrics.start()
        for helper in self._helpers:
            self._spawn(helper.run)
        self._spawn(self._report_start)
        self._spawn(self._report_restarting)
        try:
            return self._end.get() or EXIT_OK
        finally:
            self._stop_accepting()
            for helper in self._helpers:
                helper.stop()
            if self._control is not None:
                self._control.close()
            if self._metrics is not None:
                self._metrics.close()

    def _spawn(self, task: Callable[[], Any]) -> gevent.Greenlet[[], Any]:
        """Start a greenlet whose failure ends `run` with its exception."""
        greenlet = gevent.spawn(task)
        greenlet.link_exception(self._end)
        return greenlet

    # --- signals and reload -------------------------------------------------------------------

    def _handle_signals(self) -> None:
        ready = FdWatcher(self._signals.fileno())
        while True:
            ready.wait()
            received = self._signals.take()
            if signal.SIGUSR1 in received:
                LOGGER.info("draining: puts are refused from now on")
                self._shared.draining = True
                self.report_status()
            if signal.SIGHUP in received and not self._stopping:
                try:
                    self.reload()
                except errors.UsageError as error:
                    LOGGER.error("reload: %s; nothing has changed", error)
            if received & {signal.SIGTERM, signal.SIGINT} and not self._stopping:
                LOGGER.info("stopping")
                self._stop()

    def _prepare_reload(self) -> None:
        gevent.sleep(PREPARE_S)
        self._prepare_reread()

    def reload(self) -> Changes:
        """Read the options again and apply those that can change. Raises UsageError."""
        self._notifier.reloading()
        try:
            return self._reloader.reload(self._apply, self._check)
        finally:
            self._notifier.ready(self._status_text())

    def _check(self, options: ServeOptions) -> None:
        """Read the certificates before anything changes. Raises UsageError.

        If the user of -u cannot read the same files as before, the loaded certificates stay.
        """
        self._certificates = None
        if self._tls is None:
            return
        try:
            self._certificates = read_certificates(options)
        except errors.UnreadableError as error:
            if _tls_files(options) != _tls_files(self._reloader.options):
                raise
            LOGGER.error("reload: %s; keeping the loaded certificates", error)

    def _apply(self, options: ServeOptions) -> None:
        for worker in self._workers:
            worker.change_options(options)
        self._admission.change(options)
        if self._tls is not None:
            self._tls.change(options, self._certificates)
        if self._archiver is not None:
            self._archiver.change_options(options)
        if self._dispatcher is not None:
            _set_timeouts(self._dispatcher, options)

    def _stop(self) -> None:
        self._stopping = True
        self._notifier.stopping()
        self._stop_accepting()
        for worker in self._workers:
            worker.stop()

    # --- the status for the service manager ---------------------------------------------------

    def _report_start(self) -> None:
        while not self._accepting and not self._stopping:
            self._notifier.starting(self._status_text())
            gevent.sleep(START_PROGRESS_S)

    def _report_restarting(self) -> None:
        """Report when the components that keep restarting change; no worker event does that."""
        reported: list[str] = []
        while True:
            gevent.sleep(STATUS_S)
            restarting = self._restarting()
            if restarting != reported:
                self.report_status()
            reported = restarting

    def report_status(self) -> None:
        if self._accepting and not self._stopping:
            self._notifier.status(self._status_text())

    def _status_text(self) -> str:
        ready, count = sum(one.ready for one in self._workers), len(self._workers)
        workers = counted(count, "worker")
        if not self._accepting:
            return f"starting: {ready} of {workers} ready, the others read their binlogs"
        doing = "draining" if self._shared.draining else "serving"
        missing = f"; {count - ready} restarting" if ready < count else ""
        failing = "".join(f"; {name} keeps restarting" for name in self._restarting())
        return f"{doing} with {ready} of {workers}{missing}{failing}"

    def components(self) -> list[Component]:
        return [one.component for one in (*self._workers, *self._helpers)]

    def _restarting(self) -> list[str]:
        return [one.name for one in self.components() if one.keeps_restarting]

    def readiness(self) -> tuple[bool, str]:
        """Return whether all workers serve and no component keeps restarting; the status line."""
        if self._stopping:
            return False, "stopping"
        serving = self._accepting and all(one.ready for one in self._workers)
        return serving and not self._restarting(), self._status_text()

    # --- connections --------------------------------------------------------------------------

    def _open_connections(self) -> int:
        handshakes = self._tls.load() if self._tls is not None else 0
        if self._single is not None:
            return handshakes + self._single.load()
        return handshakes + self._shared.open_connections()

    def _start_accepting(self, receiver: Receiver) -> None:
        self._accepting = True
        for listener in self._sockets.clients:
            self._acceptors.append(self._spawn(Acceptor(listener, receiver, self._admission).run))
        if self._tls is not None and self._sockets.tls is not None:
            self._tls.serve(receiver)
            acceptor = Acceptor(self._sockets.tls, self._tls, self._admission, TLS_FULL)
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
        count = len(self._workers)
        # The parent has two sockets to each worker.
        capacity = self._descriptors - RESERVED_DESCRIPTORS - 2 * count
        options = self._reloader.options
        dispatcher = Dispatcher(count, options.colocate, self._shared.parent, capacity, self._spawn)
        _set_timeouts(dispatcher, options)
        return dispatcher

    def _worker_capacity(self) -> int:
        """Return how many connections a worker can hold besides its links to all peers."""
        return self._descriptors - RESERVED_DESCRIPTORS - (len(self._workers) - 1)

    # --- control socket and metrics -----------------------------------------------------------

    def _new_control(self) -> ControlServer | None:
        if self._sockets.control is None:
            return None
        colocate = self._reloader.options.colocate
        commands = AdminCommands(self._workers, self._shared, self, colocate, self._archiver)
        return ControlServer(self._sockets.control, commands.handlers())

    def _new_metrics(self, config: ProcessConfig) -> MetricsServer | None:
        if self._sockets.metrics is None:
            return None
        # prometheus_client is slow to import.
        from beanstalkd_py.server.metrics.history_metrics import history_metrics
        from beanstalkd_py.server.metrics.http_server import MetricsServer
        from beanstalkd_py.server.metrics.server_metrics import ServerMetrics
        from beanstalkd_py.server.metrics.tube_metrics import TubeMetrics

        def statuses() -> list[WorkerStatus]:
            now_mono = time.monotonic()
            return [worker.status(now_mono) for worker in self._workers]

        server = ServerMetrics(
            *(config, lambda: self._reloader.options, self._worker_capacity(), self._shared),
            *(statuses, self.components),
        )
        cache = TubeStatsCache([partial(worker.pages, "tube_stats") for worker in self._workers])
        tubes = TubeMetrics(cache, len(self._workers), config.options.metrics_tubes)

        def collect() -> Iterator[Metric]:
            yield from server.collect()
            if self._archiver is not None:
                yield from history_metrics(self._archiver.status())
            yield from tubes.collect()

        return MetricsServer(self._sockets.metrics, collect, self.readiness)

    # --- workers ------------------------------------------------------------------------------

    def _supervise(self, worker: WorkerSupervisor) -> None:
        status = worker.run()
        self._supervised -= 1
        self._status = self._status or status
        if self._supervised == 0:
            self._end.set(self._status)
        elif not self._stopping:
            self._stop()

    def worker_ready(self, worker: WorkerSupervisor) -> None:
        """Hand connections to the worker. Accepting starts when all workers have been ready."""
        if self._stopping or worker.process is None:
            return
        worker.change_options(self._reloader.options)  # they may have changed during recovery
        counters = self._shared.counters(worker.index)
        handover = Handover(worker.process.connections, counters, self._worker_capacity())
        if self._dispatcher is not None:
            self._dispatcher.attach(worker.index, handover)
        if self._accepting:
            self.report_status()
        elif all(one.was_ready.is_set() for one in self._workers):
            self._single = handover if self._dispatcher is None else None
            self._start_accepting(self._dispatcher or handover)
            self._notifier.ready(self._status_text())
            options = self._reloader.options
            LOGGER.log(NOTICE, "%s", _ready_line(options, self._sockets, len(self._workers)))
            if self._watchdog is not None:
                self._spawn(self._watchdog.run)
            self._spawn(self._prepare_reload)

    def worker_ended(self, worker: WorkerSupervisor) -> None:
        passed = None if self._dispatcher is None else self._dispatcher.detach(worker.index)
        if passed is not None:
            # Connections that never reached the worker are closed, too.
            self._shared.counters(worker.index).total_connections = passed
        comes_back = self._reloader.options.binlog_dir is not None
        self._shared.reset_worker(worker.index, comes_back)
        self.report_status()

    def worker_started(self, worker: WorkerSupervisor) -> None:
        self._shared.counters(worker.index).pid = worker.pid
        for other in self._workers:
            if other is not worker:
                worker.connect_to(other)

    def worker_answered(self, worker: WorkerSupervisor) -> None:
        if self._watchdog is not None:
            self._watchdog.answered()


def _accept_tls(tls: TlsSupervisor, acceptor: Acceptor) -> None:
    tls.was_ready.wait()
    acceptor.run()


def _set_timeouts(dispatcher: Dispatcher, options: ServeOptions) -> None:
    dispatcher.set_timeouts(options.idle_timeout_ns / NS_PER_S, options.send_timeout_ns / NS_PER_S)


def _tls_files(options: ServeOptions) -> tuple[str | None, ...]:
    return options.tls_cert, options.tls_key, options.tls_ca


def _ready_line(options: ServeOptions, sockets: Sockets, workers: int) -> str:
    """Return `ready: version 0.1.0, listening on ..., binlog ..., 2 workers, control socket ...`.

    Programs parse the prefix.
    """
    addresses = [str(listener) for listener in sockets.clients]
    if sockets.tls is not None:
        addresses.append(f"{sockets.tls} (TLS)")
    parts = [
        f"ready: version {__version__}",
        f"listening on {' and '.join(addresses)}",
        _binlog_text(options),
    ]
    if options.history is not None:
        parts.append(f"history {options.history}")
    parts.append(counted(workers, "worker"))
    if sockets.metrics is not None:
        parts.append(f"metrics on {sockets.metrics}")
    if sockets.control is not None:
        parts.append(f"control socket {str(sockets.control).removeprefix('unix:')}")
    else:
        parts.append(f"no control socket ({sockets.no_control})")
    return ", ".join(parts)


def _binlog_text(options: ServeOptions) -> str:
    if options.binlog_dir is None:
        return "no binlog (jobs are in memory only)"
    interval_ns = options.sync_interval_ns
    if interval_ns < 0:
        sync = "never synced"
    elif interval_ns == SYNC_EACH:
        sync = "synced before each reply"
    else:
        sync = f"synced every {interval_ns // NS_PER_MS} ms"
    return f"binlog {options.binlog_dir} ({sync})"
