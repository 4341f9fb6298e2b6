"""The start of a server, in this order: options, sockets, user, workers, event loop.

Clients queue in the kernel while the workers recover. Each step imports its modules itself, so that
no import delays the sockets; the event loop is the slowest import. Worker 0 starts right after the
sockets, and imports its modules while the parent continues.
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
    from beanstalkd_py.server.parent.shard_folders import TakenFolders
    from beanstalkd_py.server.process.launch import ChildProcess
    from beanstalkd_py.server.process.messages import ProcessConfig
    from beanstalkd_py.server.process.shared_memory import SharedMemory
    from beanstalkd_py.server.tls.certificates import Certificates

INSTANCE_ID_BYTES = 8


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The results of the checks: everything that the processes need at any start."""

    reloader: Reloader
    instance_id: str
    started_mono: float
    folders: TakenFolders | None

    def config(self, worker: int = -1) -> ProcessConfig:
        """Return the configuration of a worker, or of another process."""
        from beanstalkd_py.server.process.messages import ProcessConfig

        paths = self.folders.paths if self.folders is not None else []
        return ProcessConfig(
            os.getpid(),
            self.instance_id,
            self.started_mono,
            worker,
            paths[worker : worker + 1] if worker >= 0 else paths,
            self.reloader.options,
        )


def serve(
    options: ServeOptions,
    reread: Reread | None = None,
    prepare_reread: Callable[[], None] = lambda: None,
) -> int:
    """Run a server until it stops; return its exit status. Raises BeanstalkdError.

    `reread` reads the options again for a reload. `prepare_reread` imports its modules; the server
    calls it after a second of service.
    """
    started_mono = time.monotonic()
    # A closed pipe must be an error of the write, not the end of the process.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signals = SignalPipe(*_server_signals())
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
        first = None
        if user is None:  # else worker 0 must wait for the change of user
            from beanstalkd_py.server.process.launch import WORKER_MODULE, spawn

            first = spawn(WORKER_MODULE, 0, shared_fd)
        try:
            certificates = _open_other_sockets(options, sockets, user)
            prepared = _prepare(options, user, reread, notifier, started_mono)
        except BaseException:
            if first is not None:
                first.kill()  # it would keep stderr open until it notices the parent's end
            raise
        return _run(
            *(sockets, prepared, signals, descriptors, notifier, certificates, shared_fd, first),
            prepare_reread,
        )
    except ImportError as error:
        if user is None:
            raise
        text = f"user {user.pw_name} cannot read the Python installation {sys.base_prefix}: {error}"
        raise errors.WorkerError(text, EXIT_ERROR) from error
    finally:
        sockets.close()
        flush_log()


def _open_other_sockets(
    options: ServeOptions, sockets: Sockets, user: struct_passwd | None
) -> Certificates | None:
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


def _prepare(
    options: ServeOptions,
    user: struct_passwd | None,
    reread: Reread | None,
    notifier: Notifier,
    started_mono: float,
) -> _Prepared:
    """Drop root for `user`, check the folders, and reshard the binlog if needed."""
    # Imported as root, because the user may be unable to read these modules.
    from beanstalkd_py.server.parent.folder_checks import check_binlog_folder, check_history_folder
    from beanstalkd_py.server.parent.reload import Reloader
    from beanstalkd_py.server.parent.shard_folders import take_folders, with_workers

    if user is not None:
        privileges.become_user(user)
    if options.binlog_dir is not None:
        check_binlog_folder(options.binlog_dir)
        if options.history is not None:
            check_history_folder(options.history, options.binlog_dir)
    reloader = Reloader(with_workers(options), reread)
    options = reloader.options
    folders = None
    if options.binlog_dir is not None:
        status = f"resharding the binlog for {counted(options.workers, 'worker')}"
        folders = take_folders(
            *(options.binlog_dir, options.workers, options.colocate, options.file_size),
            partial(notifier.starting, status),
            options if options.history is not None else None,
        )
    return _Prepared(reloader, os.urandom(INSTANCE_ID_BYTES).hex(), started_mono, folders)


def _server_signals() -> list[signal.Signals]:
    # At a terminal SIGHUP keeps its default action: the server ends with the terminal.
    hangup = [] if os.isatty(0) else [signal.SIGHUP]
    return [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, *hangup]


def _run(
    sockets: Sockets,
    prepared: _Prepared,
    signals: SignalPipe,
    descriptors: int,
    notifier: Notifier,
    certificates: Certificates | None,
    shared_fd: int,
    first: ChildProcess | None,
    prepare_reread: Callable[[], None],
) -> int:
    from beanstalkd_py.server.logging.setup import log_in_background
    from beanstalkd_py.server.process.launch import (
        ARCHIVER_MODULE,
        TLS_MODULE,
        WORKER_MODULE,
        start_process,
    )
    from beanstalkd_py.server.process.shared_memory import SharedMemory

    options = prepared.reloader.options
    log_in_background()  # the process does not fork from here on
    shared = SharedMemory(shared_fd)
    shared.pointer.workers = options.workers

    def start(module: str, worker: int = -1, spawned: ChildProcess | None = None) -> ChildProcess:
        return start_process(module, prepared.config(worker), shared_fd, spawned)

    start_worker = partial(start, WORKER_MODULE)
    workers = [start_worker(0, first), *(start_worker(n) for n in range(1, options.workers))]
    try:
        _connect_all(workers)
    except OSError as error:
        text = f"cannot connect {counted(options.workers, 'worker')}: {error.strerror}"
        raise errors.WorkerError(text, EXIT_ERROR) from error
    from beanstalkd_py.server.parent.loop import ParentLoop

    archiver = tls = None
    if options.history is not None:
        archiver = _archiver_supervisor(prepared, shared, partial(start, ARCHIVER_MODULE))
    if certificates is not None:
        from beanstalkd_py.server.tls.tls_supervisor import TlsSupervisor

        start_tls = partial(start, TLS_MODULE)
        tls = TlsSupervisor(start_tls, certificates, shared.tls, descriptors)
    gc.freeze()
    gc.enable()
    return ParentLoop(
        *(sockets, workers, start_worker, shared, signals, descriptors, prepared.reloader),
        *(notifier, prepared.config(), tls, archiver, prepare_reread),
    ).run()


def _connect_all(workers: list[ChildProcess]) -> None:
    """Connect every two workers, before they serve. Raises OSError."""
    import socket

    for index, one in enumerate(workers):
        for other in workers[:index]:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            one.send_peer(other.index, ours)
            other.send_peer(one.index, theirs)


def _archiver_supervisor(
    prepared: _Prepared, shared: SharedMemory, start: Callable[[], ChildProcess]
) -> ArchiverSupervisor:
    from pathlib import Path

    from beanstalkd_py.server.archiver.archiver_supervisor import ArchiverSupervisor
    from beanstalkd_py.server.archiver.backlog_limit import BacklogLimit

    def is_refusing(index: int) -> bool:
        return bool(shared.counters(index).binlog_refusing)

    options = prepared.reloader.options
    folders = map(Path, prepared.config().folders)
    limit = BacklogLimit(folders, options.history_backlog, options.file_size, is_refusing)
    return ArchiverSupervisor(start, limit)


def _log_listeners(clients: list[Listener], address_ignored: bool) -> None:
    from beanstalkd_py.server.logging.setup import LOGGER

    if address_ignored:
        LOGGER.warning("options -l and -p are ignored: systemd has passed the sockets to listen on")
    for listener in clients:
        LOGGER.info("listening on %s", listener)


def _create_segment(options: ServeOptions) -> int:
    """Return the descriptor of the shared memory, which stays open for restarted workers."""
    from beanstalkd_py.server.process.shared_memory import SHARED_BYTES, create_segment

    privileges.raise_file_size_limit(
        max(SHARED_BYTES, 0 if options.binlog_dir is None else options.file_size)
    )
    return create_segment()
