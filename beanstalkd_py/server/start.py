"""The order in which a server starts.

First what can be wrong in a command, then the sockets, then the user, then the workers, which read
their binlogs while clients already queue in the kernel. Each step imports what it needs, so that no
import delays the sockets, and the event loop, the heaviest one, comes after the workers.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from beanstalkd_py import errors
from beanstalkd_py.counting import counted
from beanstalkd_py.server import listeners, privileges
from beanstalkd_py.server.addresses import parse_address, parse_endpoint, parse_host_port
from beanstalkd_py.server.exits import EXIT_ERROR
from beanstalkd_py.server.listeners import Listener, Sockets
from beanstalkd_py.server.logs import LOGGER, end_logging, never_block, set_up_logging
from beanstalkd_py.server.notify import Notifier, take_notifier
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.signals import SignalPipe

if TYPE_CHECKING:
    from beanstalkd_py.server.archiver_keeper import ArchiverKeeper
    from beanstalkd_py.server.certificates import Certificates
    from beanstalkd_py.server.launch import WorkerConfig, WorkerProcess
    from beanstalkd_py.server.reload import Reloader, Reread
    from beanstalkd_py.server.shared import SharedMemory

INSTANCE_ID_BYTES = 8


def serve(options: ServeOptions, reread: Reread | None = None) -> int:
    """Runs a server until it is told to stop; its exit status. Raises BeanstalkdError.

    `reread` reads the options again when the server is to reload them.
    """
    started_mono = time.monotonic()
    set_up_logging(options.verbosity, options.log_format)
    # Nobody may be told of a closed pipe by dying of it.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signals = SignalPipe(*_heeded_signals())
    notifier = take_notifier(os.environ, os.getpid())
    descriptors = privileges.raise_descriptor_limit()
    user = privileges.find_user(options.user) if options.user is not None else None
    sockets = Sockets(open_listeners(options))
    try:
        from beanstalkd_py.server.control_socket import open_control
        from beanstalkd_py.server.folder import check_binlog_folder, check_history_folder
        from beanstalkd_py.server.reload import Reloader
        from beanstalkd_py.server.shards import with_workers

        certificates = None
        if options.tls_listen is not None:
            from beanstalkd_py.server.certificates import read_certificates

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
        if user is not None:
            privileges.become_user(user)
        if options.binlog_dir is not None:
            check_binlog_folder(options.binlog_dir)
            if options.history is not None:
                check_history_folder(options.history, options.binlog_dir)
        reloader = Reloader(with_workers(options), _rereading(reread))
        facts = _Facts(reloader, os.urandom(INSTANCE_ID_BYTES).hex(), started_mono)
        return _serve_on(sockets, facts, signals, descriptors, notifier, certificates)
    except ImportError as error:
        if user is None:
            raise
        text = (
            f"user {user.pw_name} may not read the Python installation {sys.base_prefix}: {error}"
        )
        raise errors.WorkerError(text, EXIT_ERROR) from error
    finally:
        sockets.close()
        end_logging()


def _rereading(reread: Reread | None) -> Reread | None:
    """Chooses the number of workers as the next start would, so that a reload can compare it."""
    if reread is None:
        return None

    from beanstalkd_py.server.shards import with_workers

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
) -> int:
    from beanstalkd_py.server.launch import start_tls, start_worker
    from beanstalkd_py.server.peers import introduce_all
    from beanstalkd_py.server.shared import SHARED_BYTES, SharedMemory, create_segment

    options = facts.reloader.options
    privileges.raise_file_size_limit(
        max(SHARED_BYTES, 0 if options.binlog_dir is None else options.file_size)
    )
    folders = _worker_folders(options, notifier)
    never_block()  # nothing forks any more
    # Stays open: a worker that is started again gets it, too.
    shared_fd = create_segment()
    shared = SharedMemory(shared_fd)
    shared.workers = options.workers

    def start(index: int) -> WorkerProcess:
        return start_worker(facts.config(index, folders[index]), shared_fd)

    workers = [start(index) for index in range(options.workers)]
    try:
        introduce_all(workers)
    except OSError as error:
        text = f"cannot connect {counted(options.workers, 'worker')}: {error.strerror}"
        raise errors.WorkerError(text, EXIT_ERROR) from error
    from beanstalkd_py.server.statistics import ServerFacts
    from beanstalkd_py.server.supervisor import Supervisor
    from beanstalkd_py.server.tls_keeper import TlsKeeper

    archiver = None
    if options.history is not None:
        archiver = _archiver_keeper(facts.reloader, folders, shared, shared_fd)

    tls = None
    if certificates is not None:

        def start_again() -> WorkerProcess:
            now = facts.reloader.options
            return start_tls(now.verbosity, now.log_format, shared_fd)

        tls = TlsKeeper(start_again, certificates, shared, descriptors)
    return Supervisor(
        *(sockets, workers, start, shared, signals, descriptors, facts.reloader, notifier),
        ServerFacts(
            parent_pid=os.getpid(),
            instance_id=facts.instance_id,
            started_mono=facts.started_mono,
            max_job_size=options.max_job_size,
            file_size=options.file_size,
        ),
        tls,
        archiver,
    ).run()


def _archiver_keeper(
    reloader: Reloader, folders: list[bytes | None], shared: SharedMemory, shared_fd: int
) -> ArchiverKeeper:
    from pathlib import Path

    from beanstalkd_py.server.archiver_keeper import ArchiverKeeper
    from beanstalkd_py.server.backlog_limit import BacklogLimit
    from beanstalkd_py.server.launch import start_archiver

    names = [folder for folder in folders if folder is not None]

    def start() -> WorkerProcess:
        return start_archiver(names, reloader.options.for_archiver(), shared_fd)

    def is_refusing(index: int) -> bool:
        return bool(shared.counters(index).binlog_refusing)

    paths = [Path(os.fsdecode(name)) for name in names]
    options = reloader.options
    limit = BacklogLimit(paths, options.history_backlog, options.file_size, is_refusing)
    return ArchiverKeeper(start, limit)


def _worker_folders(options: ServeOptions, notifier: Notifier) -> list[bytes | None]:
    if options.binlog_dir is None:
        return [None] * options.workers
    from beanstalkd_py.server.shards import worker_folders

    folder, colocate = options.binlog_dir, options.colocate
    news = partial(
        notifier.starting, f"resharding the binlog for {counted(options.workers, 'worker')}"
    )
    rules = options.history_rules() if options.history is not None else None
    paths = worker_folders(folder, options.workers, colocate, options.file_size, news, rules)
    return [os.fsencode(path) for path in paths]


def open_listeners(options: ServeOptions) -> list[Listener]:
    """The sockets that systemd passed, or else the one asked for. UsageError, AddressError."""
    passed = listeners.passed_listeners(os.environ, os.getpid())
    if not passed:
        passed = [listeners.bind(parse_address(options.listen, options.port))]
    elif options.address_given:
        LOGGER.warning("options -l and -p are ignored: systemd has passed the sockets to listen on")
    for listener in passed:
        LOGGER.info("listening on %s", listener)
    return passed


@dataclass(frozen=True, slots=True)
class _Facts:
    """What all workers are told alike, at whatever time they are started."""

    reloader: Reloader
    instance_id: str
    started_mono: float

    def config(self, worker: int, folder: bytes | None) -> WorkerConfig:
        """What one worker is told."""
        from beanstalkd_py.server.launch import WorkerConfig

        options = self.reloader.options
        return WorkerConfig(
            worker=worker,
            parent_pid=os.getpid(),
            instance_id=self.instance_id,
            started_mono=self.started_mono,
            binlog_dir=folder,
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
