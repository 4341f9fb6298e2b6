"""The start of a server, in this order: options, sockets, user, workers, event loop.

Clients queue in the kernel while the workers recover. Each step imports its own modules, so that no
import delays the sockets; the event loop is the slowest import. Worker 0 starts right after the
sockets listen, and imports its modules while the parent continues.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from beanstalkd_py import errors
from beanstalkd_py.core.tube_policy import TubePolicy
from beanstalkd_py.plural import counted
from beanstalkd_py.server.accept import listeners
from beanstalkd_py.server.accept.addresses import (
    Address,
    InetAddress,
    parse_address,
    parse_endpoint,
    parse_host_port,
)
from beanstalkd_py.server.accept.listeners import KEPT_NAME, Listener, PassedListeners, Sockets
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.parent.systemd_notify import Notifier, notifier_from_environment
from beanstalkd_py.server.process import privileges
from beanstalkd_py.server.process.exit_status import EXIT_ERROR, EXIT_OK

if TYPE_CHECKING:
    from pwd import struct_passwd
    from types import FrameType

    from beanstalkd_py.server.option_changes import Changes
    from beanstalkd_py.server.parent.shard_folders import ShardFolders
    from beanstalkd_py.server.parent.standby import Replication
    from beanstalkd_py.server.process.launch import ChildProcess
    from beanstalkd_py.server.process.messages import ProcessConfig
    from beanstalkd_py.server.schedules.progress_file import Progress
    from beanstalkd_py.server.tls.certificates import Certificates

INSTANCE_ID_BYTES = 8
SIGNAL_PIPE_BYTES = 4096


class SignalPipe:
    """Catches these signals from now on, so that one greenlet can handle them in their order.

    `stop_received` is true from the first SIGTERM or SIGINT. Main thread only.
    """

    def __init__(self, *numbers: signal.Signals) -> None:
        self.stop_received = False
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # No warning for a full pipe, because thousands of signals are unread then.
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in numbers:
            # Python writes to the wakeup descriptor only if a handler is set.
            signal.signal(number, self._record)

    def _record(self, number: int, _: FrameType | None) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self.stop_received = True

    def fileno(self) -> int:
        return self._reader

    def take(self) -> set[signal.Signals]:
        try:
            data = os.read(self._reader, SIGNAL_PIPE_BYTES)
        except BlockingIOError:
            return set()
        return {signal.Signals(number) for number in data}


@dataclass(slots=True)
class ServerSetup:
    """The results of the first steps, which the event loop uses. `options` are those in force.

    `descriptors` is the RLIMIT_NOFILE of all processes. `reread` reads the options for a reload.
    """

    options: ServeOptions
    reread: Callable[[], ServeOptions] | None
    signals: SignalPipe
    notifier: Notifier
    descriptors: int
    sockets: Sockets
    certificates: Certificates | None = None
    folders: ShardFolders | None = None
    replication: Replication | None = None
    online_policies: tuple[TubePolicy, ...] = ()
    schedule_progress: dict[str, Progress] = field(default_factory=dict)
    """The progress of schedules at the last stop, by name."""
    started_mono: float = field(default_factory=time.monotonic)
    instance_id: str = field(default_factory=lambda: os.urandom(INSTANCE_ID_BYTES).hex())

    @property
    def folder_paths(self) -> list[str]:
        return self.folders.paths if self.folders is not None else []

    def config(self, module: str, index: int) -> ProcessConfig:
        from beanstalkd_py.server.process.launch import WORKER_MODULE
        from beanstalkd_py.server.process.messages import ProcessConfig

        paths = self.folder_paths
        return ProcessConfig(
            os.getpid(),
            self.instance_id,
            self.started_mono,
            index,
            paths[index : index + 1] if module == WORKER_MODULE else paths,
            replace(self.with_online_policies(self.options), schedules=()),
        )

    def with_online_policies(self, options: ServeOptions) -> ServeOptions:
        """Return the options with all policies, as processes have them. Raises UsageError."""
        from beanstalkd_py.server.tube_policies import check_size

        policies = (*self.online_policies, *options.policies)
        if not policies:
            return options
        try:
            check_size(policies)
        except ValueError as error:
            raise errors.UsageError(f"tube: {error}") from error
        return replace(options, policies=policies)

    def change_online_policies(self, policies: tuple[TubePolicy, ...]) -> None:
        """Check and save the policies. Raises UsageError, OSError."""
        from beanstalkd_py.server.parent.online_policies import save_policies

        replace(self, online_policies=policies).with_online_policies(self.options)
        if self.options.binlog_dir is not None:
            save_policies(self.options.binlog_dir, policies)
        self.online_policies = policies

    def read_options_again(self) -> tuple[ServeOptions, Changes]:
        """Return the options after a reload, and what has changed. Raises UsageError."""
        from beanstalkd_py.server.option_changes import FIELDS, compare
        from beanstalkd_py.server.parent.shard_folders import with_workers

        if self.reread is None:
            raise errors.UsageError("cannot reload: the server was started without a command line")
        try:
            # Choose the number of workers like the next start, for the comparison.
            new = with_workers(self.reread())
        except errors.BinlogFolderError as error:
            raise errors.UsageError(str(error)) from error
        changes = compare(self.options, new)
        new_values = {FIELDS[name]: getattr(new, FIELDS[name]) for name in changes.applied}
        options = replace(self.options, **new_values)
        self.with_online_policies(options)
        return options, changes


def serve(
    options: ServeOptions,
    reread: Callable[[], ServeOptions] | None = None,
) -> int:
    """Run a server until it stops; return its exit status. Raises BeanstalkdError.

    `reread` reads the options again for a reload.
    """
    # A write to a closed pipe must return an error and not end the process.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # At a terminal SIGHUP keeps its default action: the server ends with the terminal.
    hangup = [] if os.isatty(0) else [signal.SIGHUP]
    signals = SignalPipe(signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, *hangup)
    notifier = notifier_from_environment(os.environ, os.getpid())
    descriptors = privileges.raise_descriptor_limit()
    user = privileges.find_user(options.user) if options.user is not None else None
    passed = listeners.passed_listeners(os.environ, os.getpid())
    sockets = _open_client_sockets(options, passed, notifier)
    setup = ServerSetup(options, reread, signals, notifier, descriptors, sockets)
    from beanstalkd_py.server.logging.setup import LOGGER, flush_log, set_up_logging

    try:
        set_up_logging(options.verbosity, options.log_format)
        if passed.activated and options.address_given:
            LOGGER.warning(
                "options -l and -p are ignored: systemd has passed the sockets to listen on"
            )
        for listener in sockets.clients:
            LOGGER.info("listening on %s", listener)
        shared_fd = _create_segment(options)
        first_worker = None
        # Otherwise worker 0 starts after the change of user, or when this server is the primary.
        if user is None and options.replicate is None:
            from beanstalkd_py.server.process.launch import WORKER_MODULE, spawn

            first_worker = spawn(WORKER_MODULE, 0, shared_fd)
        try:
            _open_other_sockets(setup, user)
            _prepare_folders(setup, user)
            if setup.options.replicate is not None and not _stand_by(setup, shared_fd):
                return EXIT_OK
        except BaseException:
            if first_worker is not None:
                first_worker.kill()  # because it would keep stderr open after the parent's end
            raise
        return _run(setup, shared_fd, first_worker)
    except ImportError as error:
        if user is None:
            raise
        raise _unreadable_python(user, str(error)) from error
    finally:
        sockets.close()
        flush_log()


def _open_client_sockets(
    options: ServeOptions, passed: PassedListeners, notifier: Notifier
) -> Sockets:
    """Take the sockets that systemd has kept, stop listening on the others, and bind new ones.

    In this order, because the address of a new socket may overlap with that of a kept one.
    """
    addresses: list[Address] = []
    if not passed.activated:
        addresses.append(parse_address(options.listen, options.port))
    if options.tls_listen is not None:
        addresses.append(parse_host_port(options.tls_listen, "--tls-listen"))
    kept = [passed.take_kept(address) for address in addresses]
    passed.close_kept()

    def open_next() -> Listener:
        listener, address = kept.pop(0), addresses.pop(0)
        if listener is None:
            listener = listeners.bind(address)
            if isinstance(address, InetAddress):  # the server removes the file of a Unix socket
                notifier.store(KEPT_NAME, listener.socket)
        return listener

    sockets = Sockets(passed.activated or [open_next()])
    try:
        sockets.tls = open_next() if addresses else None
    except errors.AddressError:
        sockets.close()
        raise
    return sockets


def _unreadable_python(user: struct_passwd, reason: str) -> errors.WorkerError:
    text = f"user {user.pw_name} cannot read the Python installation {sys.base_prefix}: {reason}"
    return errors.WorkerError(text, EXIT_ERROR)


def _stand_by(setup: ServerSetup, shared_fd: int) -> bool:
    """Return whether this server is the primary, rather than stopped. Raises BeanstalkdError."""
    from beanstalkd_py.server.parent.standby import stand_by

    setup.replication = stand_by(setup, shared_fd)
    if setup.replication is None:
        return False
    _load_files(setup, setup.options.binlog_dir or "")
    _renew_certificates(setup)
    _open_console(setup.sockets)
    return True


def _open_other_sockets(setup: ServerSetup, user: struct_passwd | None) -> None:
    from beanstalkd_py.server.control.control_socket import open_control
    from beanstalkd_py.server.logging.setup import LOGGER

    options, sockets = setup.options, setup.sockets
    if options.tls_listen is not None:
        from beanstalkd_py.server.tls.certificates import read_certificates

        setup.certificates = read_certificates(options)
        LOGGER.info("listening on %s for TLS", sockets.tls)
    control = open_control(options.control, sockets.clients[0], user)
    if isinstance(control, str):
        sockets.no_control = control
    else:
        sockets.control = control
    if options.metrics is not None:
        sockets.metrics = listeners.bind(parse_endpoint(options.metrics, "--metrics"))
        LOGGER.info("metrics on %s", sockets.metrics)
    if options.console is not None:
        sockets.console = listeners.bind(
            parse_host_port(options.console, "--console"), listening=options.replicate is None
        )


def _open_console(sockets: Sockets) -> None:
    """Listen for the console of a new primary, which serves without it if that fails."""
    if sockets.console is None:
        return
    try:
        sockets.console.listen()
    except errors.AddressError as error:
        from beanstalkd_py.server.logging.setup import LOGGER

        LOGGER.error("no console: %s", error)
        sockets.console.close()
        sockets.console = None


def _renew_certificates(setup: ServerSetup) -> None:
    """Read the certificates that a standby has read at its start, because they may be expired."""
    if setup.certificates is None:
        return
    from beanstalkd_py.server.logging.setup import LOGGER
    from beanstalkd_py.server.tls.certificates import read_certificates

    try:
        setup.certificates = read_certificates(setup.options)
    except errors.UsageError as error:
        LOGGER.error("%s; using the certificates of the start", error)


def _prepare_folders(setup: ServerSetup, user: struct_passwd | None) -> None:
    """Drop root for `user`, check the folders, and reshard the binlog if needed."""
    # Imported as root, because the user may be unable to read these modules.
    from beanstalkd_py.server.parent.folder_checks import check_binlog_folder, check_history_folder
    from beanstalkd_py.server.parent.shard_folders import lock_shard_folders, with_workers

    console = setup.options.console_settings() if setup.options.console is not None else None
    if user is not None:
        privileges.become_user(user)
    options = setup.options
    if console is not None:
        console.check_files()
    if options.binlog_dir is not None:
        from pathlib import Path

        from beanstalkd_py.binlog.layout import check_not_replicated

        check_binlog_folder(options.binlog_dir)
        if options.replicate is None:
            check_not_replicated(Path(options.binlog_dir))
        if options.history is not None:
            check_history_folder(options.history, options.binlog_dir)
    options = setup.options = with_workers(options)
    if options.binlog_dir is not None:
        status = f"resharding the binlog for {counted(options.workers, 'worker')}"
        setup.folders = lock_shard_folders(
            options.binlog_dir,
            options.workers,
            options.colocate,
            options.file_size,
            partial(setup.notifier.starting, status),
            options if options.history is not None else None,
            lambda: setup.signals.stop_received,
        )
        if options.replicate is None:
            _load_files(setup, options.binlog_dir)
    if user is not None and not os.access(sys.executable, os.X_OK):
        raise _unreadable_python(user, f"no permission to execute {sys.executable}")


def _load_files(setup: ServerSetup, folder: str) -> None:
    """Read the online policies and the progress of schedules. Raises BinlogFolderError."""
    from beanstalkd_py.binlog.layout import POLICIES, SCHEDULES

    if os.path.lexists(os.path.join(folder, POLICIES)):  # noqa: PTH118
        from beanstalkd_py.server.parent.online_policies import load_policies

        setup.online_policies = load_policies(folder)
        setup.with_online_policies(setup.options)
    if os.path.lexists(os.path.join(folder, SCHEDULES)):  # noqa: PTH118
        from beanstalkd_py.server.schedules.progress_file import load_progress

        setup.schedule_progress = load_progress(folder)


def _run(setup: ServerSetup, shared_fd: int, first_worker: ChildProcess | None) -> int:
    from beanstalkd_py.server.logging.setup import log_in_background
    from beanstalkd_py.server.process import channel
    from beanstalkd_py.server.process.launch import WORKER_MODULE, start_process
    from beanstalkd_py.server.process.shared_memory import SharedMemory

    count = setup.options.workers
    log_in_background()  # the process does not fork from here on
    shared = SharedMemory(shared_fd)
    shared.pointer.workers = count

    def start(module: str, index: int = 0, spawned: ChildProcess | None = None) -> ChildProcess:
        process = start_process(module, setup.config(module, index), shared_fd, spawned)
        if module == WORKER_MODULE and setup.replication is not None:
            lead(process)  # before its events, because it is never a standby
            setup.replication.send_events(process)
        return process

    def lead(worker: ChildProcess) -> None:
        """Let a worker serve, with the policies that were set online."""
        options = setup.config(WORKER_MODULE, worker.index).options
        worker.channel.send(channel.PRIMARY, asdict(options))

    if setup.replication is not None:
        workers = setup.replication.workers
        for worker in workers:
            lead(worker)
    else:
        workers = [start(WORKER_MODULE, 0, first_worker)]
        workers += [start(WORKER_MODULE, number) for number in range(1, count)]
    try:
        _connect_all(workers)
    except OSError as error:
        text = f"cannot connect {counted(count, 'worker')}: {error.strerror}"
        raise errors.WorkerError(text, EXIT_ERROR) from error
    from beanstalkd_py.server.parent.loop import ParentLoop

    loop = ParentLoop(setup, shared, workers, start)
    gc.freeze()
    gc.enable()
    return loop.run()


def _connect_all(workers: list[ChildProcess]) -> None:
    """Connect every two workers, before they serve. Raises OSError."""
    import socket

    for index, one in enumerate(workers):
        for other in workers[:index]:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            one.send_peer(other.index, ours)
            other.send_peer(one.index, theirs)


def _create_segment(options: ServeOptions) -> int:
    """Return the descriptor of the shared memory, which stays open for restarted workers."""
    from beanstalkd_py.server.process.shared_memory import SHARED_BYTES, create_segment

    privileges.raise_file_size_limit(
        max(SHARED_BYTES, 0 if options.binlog_dir is None else options.file_size)
    )
    return create_segment()
