"""The order in which a server starts.

First what can be wrong in a command, then the sockets, then the user, then the workers, which read
their binlogs while clients already queue in the kernel. Each step imports what it needs, so that no
import delays the sockets, and the event loop, the heaviest one, comes after the workers. The first
worker starts right after the sockets, and imports its modules while the parent does the rest.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from beanstalkd_py import errors
from beanstalkd_py.plural import counted
from beanstalkd_py.server.accept import listeners
from beanstalkd_py.server.accept.addresses import parse_address, parse_endpoint, parse_host_port
from beanstalkd_py.server.accept.listeners import Listener, Sockets
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.parent.systemd_notify import Notifier, notifier_from_environment
from beanstalkd_py.server.process import privileges
from beanstalkd_py.server.process.exit_status import EXIT_ERROR
from beanstalkd_py.server.process.signals import SignalPipe

if TYPE_CHECKING:
    from pwd import struct_passwd

    from beanstalkd_py.server.archiver.archiver_supervisor import ArchiverSupervisor
    from beanstalkd_py.server.parent.reload import Reloader, Reread
    from beanstalkd_py.server.process.launch import ChildProcess, WorkerConfig
    from beanstalkd_py.server.process.shared_memory import SharedMemory
    from beanstalkd_py.server.tls.certificates import Certificates

INSTANCE_ID_BYTES = 8


def serve(
    options: ServeOptions,
    reread: Reread | None = None,
    prepare_reread: Callable[[], None] = lambda: None,
) -> int:
    """Runs a server until it is told to stop; its exit status. Raises BeanstalkdError.

    `reread` reads the options again when the server is to reload them. `prepare_reread` imports
    what `reread` needs; the server calls it when it has served clients for a second.
    """
    started_mono = time.monotonic()
    # Nobody may be told of a closed pipe by dying of it.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signals = SignalPipe(*_heeded_signals())
    notifier = notifier_from_environment(os.environ, os.getpid())
    descriptors = privileges.raise_descriptor_limit()
    user = privileges.find_user(options.user) if options.user is not None else None
    passed = listeners.passed_listeners(os.environ, os.getpid())
    sockets = Sockets(passed or [listeners.bind(parse_address(options.listen, options.port))])
    from beanstalkd_py.server.logging.setup import flush_log, set_up_logging

    try:
        set_up_logging(options.verbosity, options.log_format)
        _log_listeners(sockets.clients, bool(passed and options.address_given))
        shared_fd = _create_segment(options)
        first = _spawn_first(shared_fd) if user is None else None
        try:
            certificates = _open_others(options, sockets, user)
            facts = _check(options, user, reread, notifier, started_mono)
        except BaseException:
            if first is not None:
                first.kill()  # it would hold stderr open until it notices
            raise
        return _serve_on(
            *(sockets, facts, signals, descriptors, notifier, certificates, shared_fd, first),
            prepare_reread,
        )
    except ImportError as error:
        if user is None:
            raise
        text = (
            f"user {user.pw_name} may not read the Python installation {sys.base_prefix}: {error}"
        )
        raise errors.WorkerError(text, EXIT_ERROR) from error
    finally:
        sockets.close()
        flush_log()


def _spawn_first(shared_fd: int) -> ChildProcess:
    """Starts worker 0 before anything is known that it needs; it imports its modules meanwhile.

    Not before the user is given up, because a worker must be a process of that user.
    """
    from beanstalkd_py.server.process.launch import spawn_worker

    return spawn_worker(0, shared_fd)


def _open_others(
    options: ServeOptions, sockets: Sockets, user: struct_passwd | None
) -> Certificates | None:
    """Opens all sockets that are not for plain clients; the control socket is for `user`, too."""
    from beanstalkd_py.server.control.control_socket import open_control
    from beanstalkd_py.server.logging.setup import LOGGER

    certificates = None
    if options.tls_listen is not None:
        from beanstalkd_py.server.tls.certificates import read_certificates

        certificates = read_certificates(options)
        sockets.tls = listeners.bind(parse_host_port(options.tls_listen, "--tls-listen"))
        LOGGER.info("listening on %s for TLS", sockets.tls)
    control = open_control(options.control, sockets.clients[0], user)
    if isinstance(control, str):
        sockets.no_control = control
    else:
        sockets.control = control
    if options.metrics is not None:
        sockets.metrics = listeners.bind(parse_endpoint(options.metrics, "--metrics"))
        LOGGER.info("metrics on %s", sockets.metrics)
    return certificates


def _check(
    options: ServeOptions,
    user: struct_passwd | None,
    reread: Reread | None,
    notifier: Notifier,
    started_mono: float,
) -> _Facts:
    """Drops root for `user`, checks the folders, and reshards that of the binlog if need be."""
    # Imported as root: the user may be unable to read them, and a wrong folder is told first.
    from beanstalkd_py.server.parent.folder_checks import check_binlog_folder, check_history_folder
    from beanstalkd_py.server.parent.reload import Reloader
    from beanstalkd_py.server.parent.shard_folders import with_workers

    if user is not None:
        privileges.become_user(user)
    if options.binlog_dir is not None:
        check_binlog_folder(options.binlog_dir)
        if options.history is not None:
            check_history_folder(options.history, options.binlog_dir)
    reloader = Reloader(with_workers(options), _rereading(reread))
    folders = _worker_folders(reloader.options, notifier)
    return _Facts(reloader, os.urandom(INSTANCE_ID_BYTES).hex(), started_mono, folders)


def _rereading(reread: Reread | None) -> Reread | None:
    """Chooses the number of workers as the next start would, so that a reload can compare it."""
    if reread is None:
        return None

    from beanstalkd_py.server.parent.shard_folders import with_workers

    def read_again() -> ServeOptions:
        try:
            return with_workers(reread())
        except errors.BinlogFolderError as error:
            raise errors.UsageError(str(error)) from error

    return read_again


def _heeded_signals() -> list[signal.Signals]:
    """At a terminal, SIGHUP is its end, and the server goes with it."""
    at_terminal = os.isatty(0)
    hangup = [] if at_terminal else [signal.SIGHUP]
    return [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, *hangup]


def _serve_on(
    sockets: Sockets,
    facts: _Facts,
    signals: SignalPipe,
    descriptors: int,
    notifier: Notifier,
    certificates: Certificates | None,
    shared_fd: int,
    first: ChildProcess | None,
    prepare_reread: Callable[[], None],
) -> int:
    from beanstalkd_py.server.logging.setup import never_block
    from beanstalkd_py.server.parent.worker_sockets import connect_all
    from beanstalkd_py.server.process.launch import start_tls, start_worker
    from beanstalkd_py.server.process.shared_memory import SharedMemory

    options = facts.reloader.options
    never_block()  # nothing forks any more
    shared = SharedMemory(shared_fd)
    shared.workers = options.workers

    def start(index: int, spawned: ChildProcess | None = None) -> ChildProcess:
        return start_worker(facts.config(index), shared_fd, spawned)

    workers = [start(0, first), *(start(index) for index in range(1, options.workers))]
    try:
        connect_all(workers)
    except OSError as error:
        text = f"cannot connect {counted(options.workers, 'worker')}: {error.strerror}"
        raise errors.WorkerError(text, EXIT_ERROR) from error
    from beanstalkd_py.server.parent.loop import ParentLoop
    from beanstalkd_py.server.stats.stats_reply import ServerInfo
    from beanstalkd_py.server.tls.tls_supervisor import TlsSupervisor

    archiver = None
    if options.history is not None:
        archiver = _archiver_keeper(facts.reloader, facts.folders, shared, shared_fd)

    tls = None
    if certificates is not None:

        def start_again() -> ChildProcess:
            now = facts.reloader.options
            return start_tls(now.verbosity, now.log_format, shared_fd)

        tls = TlsSupervisor(start_again, certificates, shared, descriptors)
    gc.freeze()
    gc.enable()
    return ParentLoop(
        *(sockets, workers, start, shared, signals, descriptors, facts.reloader, notifier),
        ServerInfo(
            parent_pid=os.getpid(),
            instance_id=facts.instance_id,
            started_mono=facts.started_mono,
            max_job_size=options.max_job_size,
            file_size=options.file_size,
        ),
        tls,
        archiver,
        prepare_reread,
    ).run()


def _archiver_keeper(
    reloader: Reloader, folders: list[bytes | None], shared: SharedMemory, shared_fd: int
) -> ArchiverSupervisor:
    from pathlib import Path

    from beanstalkd_py.server.archiver.archiver_supervisor import ArchiverSupervisor
    from beanstalkd_py.server.archiver.backlog_limit import BacklogLimit
    from beanstalkd_py.server.process.launch import start_archiver

    names = [folder for folder in folders if folder is not None]

    def start() -> ChildProcess:
        return start_archiver(names, reloader.options.for_archiver(), shared_fd)

    def is_refusing(index: int) -> bool:
        return bool(shared.counters(index).binlog_refusing)

    paths = [Path(os.fsdecode(name)) for name in names]
    options = reloader.options
    limit = BacklogLimit(paths, options.history_backlog, options.file_size, is_refusing)
    return ArchiverSupervisor(start, limit)


def _worker_folders(options: ServeOptions, notifier: Notifier) -> list[bytes | None]:
    if options.binlog_dir is None:
        return [None] * options.workers
    from beanstalkd_py.server.parent.shard_folders import worker_folders

    folder, colocate = options.binlog_dir, options.colocate
    news = partial(
        notifier.starting, f"resharding the binlog for {counted(options.workers, 'worker')}"
    )
    rules = options.history_rules() if options.history is not None else None
    paths = worker_folders(folder, options.workers, colocate, options.file_size, news, rules)
    return [os.fsencode(path) for path in paths]


def _log_listeners(clients: list[Listener], address_ignored: bool) -> None:
    from beanstalkd_py.server.logging.setup import LOGGER

    if address_ignored:
        LOGGER.warning("options -l and -p are ignored: systemd has passed the sockets to listen on")
    for listener in clients:
        LOGGER.info("listening on %s", listener)


def _create_segment(options: ServeOptions) -> int:
    """The descriptor of the shared memory. It stays open for workers that are started again."""
    from beanstalkd_py.server.process.shared_memory import SHARED_BYTES, create_segment

    privileges.raise_file_size_limit(
        max(SHARED_BYTES, 0 if options.binlog_dir is None else options.file_size)
    )
    return create_segment()


@dataclass(frozen=True, slots=True)
class _Facts:
    """What all workers are told alike, at whatever time they are started."""

    reloader: Reloader
    instance_id: str
    started_mono: float
    folders: list[bytes | None]

    def config(self, worker: int) -> WorkerConfig:
        """What one worker is told."""
        from beanstalkd_py.server.process.launch import WorkerConfig

        options = self.reloader.options
        return WorkerConfig(
            worker=worker,
            parent_pid=os.getpid(),
            instance_id=self.instance_id,
            started_mono=self.started_mono,
            binlog_dir=self.folders[worker],
            file_size=options.file_size,
            sync_interval_ns=options.sync_interval_ns,
            max_job_size=options.max_job_size,
            verbosity=options.verbosity,
            workers=options.workers,
            colocate=options.colocate,
            limits=options.limits(),
            log_format=options.log_format,
            slow_ns=options.slow_ns,
            history=options.history is not None,
        )
