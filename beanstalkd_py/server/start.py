"""The order in which a server starts.

First what can be wrong in a command, then the sockets, then the user, then the workers, which read
their binlogs while clients already queue in the kernel. The event loop is imported only after
that: it is the heaviest import, and the workers need the time anyway.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass

from beanstalkd_py import errors
from beanstalkd_py.server import listeners, privileges
from beanstalkd_py.server.addresses import parse_address
from beanstalkd_py.server.exits import EXIT_ERROR
from beanstalkd_py.server.folder import check_binlog_folder
from beanstalkd_py.server.launch import WorkerConfig, WorkerProcess, start_worker
from beanstalkd_py.server.listeners import Listener
from beanstalkd_py.server.logs import LOGGER, set_up_logging
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.peers import introduce_all
from beanstalkd_py.server.shards import worker_folders
from beanstalkd_py.server.shared import SharedMemory, create_segment
from beanstalkd_py.server.signals import SignalPipe

INSTANCE_ID_BYTES = 8


def serve(options: ServeOptions) -> int:
    """Runs a server until it is told to stop; its exit status. Raises BeanstalkdError."""
    started_mono = time.monotonic()
    set_up_logging(options.verbosity)
    # Nobody may be told of a closed pipe by dying of it.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signals = SignalPipe(signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    descriptors = privileges.raise_descriptor_limit()
    user = privileges.find_user(options.user) if options.user is not None else None
    listening = open_listeners(options)
    try:
        if user is not None:
            privileges.become_user(user)
        if options.binlog_dir is not None:
            check_binlog_folder(options.binlog_dir)
        return _serve_on(listening, options, started_mono, signals, descriptors)
    except ImportError as error:
        if user is None:
            raise
        text = (
            f"user {user.pw_name} may not read the Python installation {sys.base_prefix}: {error}"
        )
        raise errors.WorkerError(text, EXIT_ERROR) from error
    finally:
        for listener in listening:
            listener.close()


def _serve_on(
    listening: list[Listener],
    options: ServeOptions,
    started_mono: float,
    signals: SignalPipe,
    descriptors: int,
) -> int:
    folders = _worker_folders(options)
    # Stays open: a worker that is started again gets it, too.
    shared_fd = create_segment()
    shared = SharedMemory(shared_fd)
    shared.workers = options.workers
    facts = _Facts(options, os.urandom(INSTANCE_ID_BYTES).hex(), started_mono)

    def start(index: int) -> WorkerProcess:
        return start_worker(facts.config(index, folders[index]), shared_fd)

    workers = [start(index) for index in range(options.workers)]
    try:
        introduce_all(workers)
    except OSError as error:
        text = f"cannot connect {options.workers} workers: {error.strerror}"
        raise errors.WorkerError(text, EXIT_ERROR) from error
    from beanstalkd_py.server.supervisor import Supervisor

    return Supervisor(
        listening, workers, start, shared, signals, descriptors, options.colocate
    ).run()


def _worker_folders(options: ServeOptions) -> list[bytes | None]:
    if options.binlog_dir is None:
        return [None] * options.workers
    folder, colocate = options.binlog_dir, options.colocate
    paths = worker_folders(folder, options.workers, colocate, options.file_size)
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

    options: ServeOptions
    instance_id: str
    started_mono: float

    def config(self, worker: int, folder: bytes | None) -> WorkerConfig:
        """What one worker is told."""
        options = self.options
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
        )
