"""The parent's event loop: signals, supervision, accepting, reload and the end of the server."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import AsyncResult

from beanstalkd_py import errors
from beanstalkd_py.binlog.layout import POLICIES, SCHEDULES
from beanstalkd_py.core.shared_memory import LEASE_ENDED, set_lease_end
from beanstalkd_py.server.accept.acceptor import Acceptor, Receiver
from beanstalkd_py.server.accept.addresses import UNIX_PREFIX
from beanstalkd_py.server.accept.admission import Admission
from beanstalkd_py.server.accept.dispatch import Dispatcher
from beanstalkd_py.server.accept.handover import (
    DESCRIPTORS_PER_LINK,
    RESERVED_DESCRIPTORS,
    Handover,
)
from beanstalkd_py.server.archiver.archiver_supervisor import ArchiverSupervisor
from beanstalkd_py.server.archiver.backlog_limit import BacklogLimit
from beanstalkd_py.server.control.admin_commands import AdminCommands
from beanstalkd_py.server.control.control_server import ControlServer
from beanstalkd_py.server.logging.lines import NOTICE
from beanstalkd_py.server.logging.setup import LOGGER, set_up_logging
from beanstalkd_py.server.option_changes import Changes, value_text
from beanstalkd_py.server.options import ServeOptions, auto_tls_processes
from beanstalkd_py.server.parent.ready_line import ready_line
from beanstalkd_py.server.parent.server_status import CONSOLE_NAME, ServerStatus
from beanstalkd_py.server.parent.worker_supervisor import WorkerSupervisor
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_ERROR, EXIT_OK
from beanstalkd_py.server.process.fd_wait import FdWatcher
from beanstalkd_py.server.process.launch import (
    ARCHIVER_MODULE,
    CONSOLE_MODULE,
    TLS_MODULE,
    WORKER_MODULE,
    ChildProcess,
)
from beanstalkd_py.server.process.messages import ConsoleConfig
from beanstalkd_py.server.process.shared_memory import SharedMemory
from beanstalkd_py.server.process.supervision import Supervisor
from beanstalkd_py.server.replicator.replicator_supervisor import ReplicatorSupervisor
from beanstalkd_py.server.stats.tube_stats import TubeStatsCache
from beanstalkd_py.server.tls.certificates import Certificates, read_certificates_again
from beanstalkd_py.server.tls.tls_processes import TLS_FULL, TlsProcesses, start_tls_processes

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from beanstalkd_py.server.console.console_supervisor import ConsoleSupervisor
    from beanstalkd_py.server.metrics.http_server import MetricsServer
    from beanstalkd_py.server.parent.online_policies import Policies
    from beanstalkd_py.server.parent.start import ServerSetup
    from beanstalkd_py.server.schedules.scheduler import Scheduler

KEEPALIVES_PER_WATCHDOG_LIMIT = 4
FINISH_LIMIT_S = 4.0
"""How long a stop waits until workers have sent all replies; they have a limit of their own."""


class ParentLoop:
    """Supervises the workers and accepts their connections.

    `start` starts a process, by its module and number. A single worker is not restarted: the server
    ends with the worker's status, and the service manager restarts the server.
    """

    def __init__(
        self,
        setup: ServerSetup,
        shared: SharedMemory,
        workers: list[ChildProcess],
        start: Callable[..., ChildProcess],
    ) -> None:
        self._end: AsyncResult[int] = AsyncResult()
        self._setup = setup
        self._sockets = setup.sockets
        self._notifier = setup.notifier
        self._shared = shared
        several = len(workers) > 1
        restart = partial(start, WORKER_MODULE) if several else None
        self._workers = [WorkerSupervisor(self, worker, restart) for worker in workers]
        self._tls = self._start_tls(partial(start, TLS_MODULE))
        self._dispatcher = self._new_dispatcher() if several else None
        self._single: Handover | None = None
        self.scheduler: Scheduler | None = None
        """Exists if there are schedules, or have been since the start."""
        self._admission = Admission(setup.options, self._open_connections, shared.parent)
        self._acceptors: list[gevent.Greenlet[[], Any]] = []
        self._supervised = len(workers)
        self._stopped = 0
        self._status = EXIT_OK
        self._unanswered_ping = False
        self._archiver = None
        if setup.options.history is not None:
            limit = self._backlog_limit(setup.options)
            if setup.replication is not None and setup.replication.archiver is not None:
                self._archiver = setup.replication.archiver
                self._archiver.limit = limit
            else:
                self._archiver = ArchiverSupervisor(partial(start, ARCHIVER_MODULE), limit)
        self._helpers: list[Supervisor] = []
        self.state = ServerStatus(
            setup.notifier, shared, self._workers, self._helpers, self._faults
        )
        if self._tls is not None:
            self._helpers += self._tls.supervisors
        if self._archiver is not None:
            self._helpers.append(self._archiver)
        self.replicator = None
        if setup.replication is not None:
            process = setup.replication.process
            self.replicator = ReplicatorSupervisor(process, self._end_term, self._resign)
            self._helpers.append(self.replicator)
        self._console = self._new_console(partial(start, CONSOLE_MODULE))
        if self._console is not None:
            self._helpers.append(self._console)
        self._control = self._new_control()
        self._metrics = self._new_metrics()

    def run(self) -> int:
        """Run until all workers have ended; return the exit status of the server."""
        self._shared.parent.pid = os.getpid()
        self._spawn(self._handle_signals)
        self._start_scheduler()
        for worker in self._workers:
            self._shared.counters(worker.index).pid = worker.pid
            self._spawn(partial(self._supervise, worker))
        if self._control is not None:
            self._spawn(self._control.run)
        if self._metrics is not None:
            self._metrics.start()
        for helper in self._helpers:
            self._spawn(helper.run)
        self._spawn(self.state.report_start)
        self._spawn(self.state.report_failing)
        try:
            return self._end.get() or EXIT_OK
        finally:
            self._stop_accepting()
            if self.scheduler is not None:
                self.scheduler.close()  # before the end of the replicator, which stores it
            stops = [gevent.spawn(helper.stop) for helper in self._helpers]
            gevent.joinall(stops, raise_error=True)
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
        signals = self._setup.signals
        ready = FdWatcher(signals.fileno())
        while True:
            ready.wait()
            received = signals.take()
            if signal.SIGUSR1 in received:
                LOGGER.info("draining: puts are refused from now on")
                self._shared.draining = True
                self.state.report()
            if signal.SIGHUP in received and not self.state.is_stopping:
                try:
                    self.reload()
                except errors.UsageError as error:
                    LOGGER.error("reload: %s; nothing has changed", error)
            if received & {signal.SIGTERM, signal.SIGINT} and not self.state.is_stopping:
                LOGGER.info("stopping")
                self._stop()

    def reload(self) -> Changes:
        """Read the options again and apply those that can change, or none. Raises UsageError."""
        self._notifier.reloading()
        try:
            options, changes = self._setup.read_options_again()
            tls, before = self._tls, self._setup.options
            certificates = None if tls is None else read_certificates_again(options, before)
            if self._console is not None:
                options.console_settings().accounts()  # raises if the new users are invalid
            self._setup.options = options
            set_up_logging(options.verbosity, options.log_format)
            self._apply(options, certificates)
            for name, value in changes.applied.items():
                LOGGER.info("reload: %s is %s now", name, value_text(name, value))
            for name, value in changes.waiting.items():
                LOGGER.warning("reload: %s %s needs a restart", name, value_text(name, value))
            return changes
        finally:
            self._notifier.ready(self.state.text())

    def _apply(self, options: ServeOptions, certificates: Certificates | None) -> None:
        self._change_workers(options)
        self._admission.change(options)
        if self._tls is not None:
            self._tls.change(options, certificates)
        if self._archiver is not None:
            self._archiver.change_options(options)
        if self._console is not None:
            self._console.change_options(options)
        if self._dispatcher is not None:
            self._dispatcher.set_timeouts(options)
        if self.scheduler is not None:
            self.scheduler.change(options.schedules)
        else:
            self._start_scheduler()

    def _start_scheduler(self) -> None:
        if not self._setup.options.schedules and not self._setup.schedule_progress:
            return
        # cronsim is imported only if it is needed.
        from beanstalkd_py.server.schedules.start import start_scheduler

        def saved() -> None:
            if self.replicator is not None:
                self.replicator.saved(SCHEDULES)

        self.scheduler = start_scheduler(
            self._setup, self._shared, self._receiver, self._spawn, saved
        )

    def _receiver(self) -> Receiver | None:
        """Wait for a start's end; return the receiver of new connections, None during a stop."""
        for worker in self._workers:
            worker.was_ready.wait()
        return None if self.state.is_stopping else self._dispatcher or self._single

    def _change_workers(self, options: ServeOptions) -> None:
        worker_options = self._setup.with_online_policies(options)
        for worker in self._workers:
            worker.change_options(worker_options)

    def policies(self) -> tuple[Policies, Policies]:
        """Return the tube policies that were set online, and those of the configuration file."""
        return self._setup.online_policies, tuple(self._setup.options.policies)

    def change_online_policies(self, policies: Policies) -> None:
        """Keep and apply other online policies. Raises UsageError, ControlError, OSError.

        After a ControlError they apply, too: they are saved, and a later start would apply them.
        """
        self._setup.change_online_policies(policies)
        self._change_workers(self._setup.options)
        if self.replicator is not None:
            self.replicator.wait_for(POLICIES)

    def _stop(self, send_replies: bool = True) -> None:
        self.state.is_stopping = True
        self._notifier.stopping()
        if self.scheduler is not None:
            self.scheduler.stop()
        self._stop_accepting()
        if send_replies:
            self._spawn(self._finish_workers)
        else:
            self._stop_workers()

    def _finish_workers(self) -> None:
        """Let clients receive all replies, and stop the workers."""
        for worker in self._workers:
            worker.finish()
        # Together, because a client of one worker may wait for the reply of another one.
        gevent.wait([worker.finished for worker in self._workers], timeout=FINISH_LIMIT_S)
        self._stop_workers()

    def _stop_workers(self) -> None:
        for worker in self._workers:
            worker.stop()

    # --- the status for the service manager ---------------------------------------------------

    def _send_keepalives(self) -> None:
        """Send keepalives to the service manager's watchdog.

        A single worker, which no heartbeat supervises, gets a ping with each keepalive. The next
        keepalive waits for its answer.
        """
        while True:
            if not self._unanswered_ping:
                self._notifier.alive()
                if self._single is not None:
                    self._unanswered_ping = True
                    self._workers[0].send_message(channel.PING)
            gevent.sleep(self._notifier.watchdog_s / KEEPALIVES_PER_WATCHDOG_LIMIT)

    def _faults(self) -> list[str]:
        """Return the parts of the status line about failures of other things than processes."""
        faults = []
        if self.replicator is not None and self.replicator.status.unavailable:
            faults.append(f"the replicated log: {self.replicator.status.unavailable}")
        schedules = self.scheduler.failing() if self.scheduler is not None else []
        if schedules:
            names = schedules[0] if len(schedules) == 1 else str(len(schedules))
            faults.append(f"failing schedules: {names}")
        return faults

    # --- connections --------------------------------------------------------------------------

    def _open_connections(self) -> int:
        uncounted = self._tls.uncounted_connections() if self._tls is not None else 0
        if self._single is not None:
            return uncounted + self._single.connection_count()
        return uncounted + self._shared.open_connections()

    def _start_accepting(self, receiver: Receiver) -> None:
        self.state.is_accepting = True
        for listener in self._sockets.clients:
            self._acceptors.append(self._spawn(Acceptor(listener, receiver, self._admission).run))
        if self._tls is not None and self._sockets.tls is not None:
            self._tls.serve(receiver)
            acceptor = Acceptor(self._sockets.tls, self._tls, self._admission, TLS_FULL)
            self._acceptors.append(self._spawn(partial(self._tls.run_when_ready, acceptor)))

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
        options = self._setup.options
        # The parent has two sockets to each worker and to each TLS process.
        sockets = 2 * (count + self._shared.pointer.tls_processes)
        capacity = self._setup.descriptors - RESERVED_DESCRIPTORS - sockets
        dispatcher = Dispatcher(count, options.colocate, self._shared.parent, capacity, self._spawn)
        dispatcher.set_timeouts(options)
        return dispatcher

    def _worker_capacity(self) -> int:
        """Return how many connections a worker can hold besides its links to all peers."""
        links = DESCRIPTORS_PER_LINK * (len(self._workers) - 1)
        return self._setup.descriptors - RESERVED_DESCRIPTORS - links

    # --- control socket and metrics -----------------------------------------------------------

    def _new_control(self) -> ControlServer | None:
        if self._sockets.control is None:
            return None
        colocate = self._setup.options.colocate
        commands = AdminCommands(self._workers, self._shared, self, colocate, self._archiver)
        return ControlServer(self._sockets.control, commands.handlers())

    def _new_metrics(self) -> MetricsServer | None:
        if self._sockets.metrics is None:
            return None
        # prometheus_client is slow to import.
        from beanstalkd_py.server.metrics.history_metrics import history_metrics
        from beanstalkd_py.server.metrics.http_server import MetricsServer
        from beanstalkd_py.server.metrics.replication_metrics import replication_metrics
        from beanstalkd_py.server.metrics.schedule_metrics import schedule_metrics
        from beanstalkd_py.server.metrics.server_metrics import ServerMetrics
        from beanstalkd_py.server.metrics.tube_metrics import tube_metrics

        capacity = self._worker_capacity()
        server = ServerMetrics(
            self._setup, self._shared, capacity, self._workers, self.state.components
        )
        cache = TubeStatsCache([partial(worker.pages, "tube_stats") for worker in self._workers])
        count, most_tubes = len(self._workers), self._setup.options.metrics_tubes

        def collect() -> Iterator[Metric]:
            yield from server.collect()
            if self._archiver is not None:
                yield from history_metrics(self._archiver.status())
            if self.replicator is not None:
                yield from replication_metrics(self.replicator.status)
            if self.scheduler is not None:
                yield from schedule_metrics(self.scheduler.statuses())
            if most_tubes > 0:
                yield from tube_metrics(cache.get(), count, most_tubes)

        return MetricsServer(self._sockets.metrics, collect, self.state.readiness)

    def _new_console(self, start: Callable[[], ChildProcess]) -> ConsoleSupervisor | None:
        listener, control = self._sockets.console, self._sockets.control
        if listener is None:
            return None
        from beanstalkd_py.server.console.console_supervisor import ConsoleSupervisor

        path = str(control).removeprefix(UNIX_PREFIX) if control is not None else None
        config = ConsoleConfig(str(self._sockets.clients[0]), path)
        return ConsoleSupervisor(CONSOLE_NAME, start, listener.socket, config)

    # --- TLS ----------------------------------------------------------------------------------

    def _start_tls(self, start: Callable[[int], ChildProcess]) -> TlsProcesses | None:
        certificates, descriptors = self._setup.certificates, self._setup.descriptors
        if certificates is None:
            return None
        count = self._setup.options.tls_processes or auto_tls_processes()
        return start_tls_processes(count, start, certificates, self._shared, descriptors)

    # --- workers ------------------------------------------------------------------------------

    def _backlog_limit(self, options: ServeOptions) -> BacklogLimit:
        folders = map(Path, self._setup.folder_paths)
        return BacklogLimit(
            folders, options.history_backlog, options.file_size, self._shared.is_refusing
        )

    def _supervise(self, worker: WorkerSupervisor) -> None:
        status = worker.run()
        self._supervised -= 1
        self._status = self._status or status
        if self._supervised == 0:
            self._end.set(self._status)
        elif not self.state.is_stopping:
            self._stop()

    def _resign(self) -> None:
        """Stop the server, so that another one takes over and this one is started again."""
        LOGGER.log(NOTICE, "a failover is requested; this server becomes a standby")
        self._status = self._status or EXIT_ERROR
        if not self.state.is_stopping:
            self._stop()

    def _end_term(self, status: int) -> None:
        """Stop the server after the end of the replicator, because no reply may be sent."""
        set_lease_end(self._shared.pointer, LEASE_ENDED)
        self._status = self._status or status
        if not self.state.is_stopping:
            self._stop(send_replies=False)

    def worker_ready(self, worker: WorkerSupervisor) -> None:
        """Hand connections to the worker. Accepting starts when all workers have been ready."""
        if self.state.is_stopping or worker.process is None:
            return
        # The options may have changed during recovery.
        worker.change_options(self._setup.with_online_policies(self._setup.options))
        counters = self._shared.counters(worker.index)
        handover = Handover(worker.process.connections, counters, self._worker_capacity())
        if self._dispatcher is not None:
            self._dispatcher.attach(worker.index, handover)
        if self.state.is_accepting:
            self.state.report()
        elif all(other.was_ready.is_set() for other in self._workers):
            self._single = handover if self._dispatcher is None else None
            self._start_accepting(self._dispatcher or handover)
            self._notifier.ready(self.state.text())
            options = self._setup.options
            LOGGER.log(NOTICE, "%s", ready_line(options, self._sockets, len(self._workers)))
            if self._notifier.watchdog_s:
                self._spawn(self._send_keepalives)
            if self._console is not None:
                self._console.begin()

    def worker_ended(self, worker: WorkerSupervisor) -> None:
        passed = None if self._dispatcher is None else self._dispatcher.detach(worker.index)
        if passed is not None:
            # Also counts connections that were in flight as closed.
            self._shared.counters(worker.index).total_connections = passed
        will_recover = self._setup.options.binlog_dir is not None
        self._shared.reset_worker(worker.index, will_recover)
        self.state.report()

    def worker_stopped(self) -> None:
        """Let a standby take over as soon as the last worker has stopped, before it has ended."""
        self._stopped += 1
        if self.replicator is not None and self._stopped == len(self._workers):
            self._spawn(partial(self._hand_over, self.replicator))

    def _hand_over(self, replicator: ReplicatorSupervisor) -> None:
        if self.scheduler is not None:
            self.scheduler.close()  # so that the next primary knows the last tick
        replicator.stop()

    def worker_started(self, worker: WorkerSupervisor) -> None:
        self._shared.counters(worker.index).pid = worker.pid
        for other in self._workers:
            if other is not worker:
                worker.connect_to(other)

    def worker_answered(self, worker: WorkerSupervisor) -> None:
        self._unanswered_ping = False
