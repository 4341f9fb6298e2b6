"""The order in which a server starts.

First what can be wrong in a command, then the sockets, then the user, then the worker, which
reads the binlog while clients already queue in the kernel. The event loop is imported only after
that: it is the heaviest import, and the worker needs the time anyway.
"""

from __future__ import annotations

import os
import signal
import time

from beanstalkd_py.server import listeners, privileges
from beanstalkd_py.server.addresses import parse_address
from beanstalkd_py.server.folder import check_binlog_folder
from beanstalkd_py.server.launch import WorkerConfig, start_worker
from beanstalkd_py.server.listeners import Listener
from beanstalkd_py.server.logs import LOGGER, set_up_logging
from beanstalkd_py.server.options import ServeOptions
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
    shared_fd = create_segment()
    shared = SharedMemory(shared_fd)
    shared.workers = options.workers
    worker = start_worker(_worker_config(options, started_mono), shared_fd)
    os.close(shared_fd)
    from beanstalkd_py.server.supervisor import Supervisor

    return Supervisor(listening, worker, shared, signals, descriptors).run()


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


def _worker_config(options: ServeOptions, started_mono: float) -> WorkerConfig:
    folder = options.binlog_dir
    return WorkerConfig(
        worker=0,
        parent_pid=os.getpid(),
        instance_id=os.urandom(INSTANCE_ID_BYTES).hex(),
        started_mono=started_mono,
        binlog_dir=os.fsencode(folder) if folder is not None else None,
        file_size=options.file_size,
        sync_interval_ns=options.sync_interval_ns,
        max_job_size=options.max_job_size,
        verbosity=options.verbosity,
    )
