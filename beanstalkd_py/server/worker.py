"""A worker process, from exec to exit.

Run as `python -m beanstalkd_py.server.worker CHANNEL CONNECTIONS SHARED`, three descriptors from
the parent. A worker obeys its channel and nothing else: signals meant for the server reach the
parent. It must not outlive the parent, whatever kills it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import time
from typing import Any

from beanstalkd_py import errors
from beanstalkd_py.core.core import Core, CoreConfig
from beanstalkd_py.server import channel
from beanstalkd_py.server.exits import EXIT_ERROR, EXIT_FOLDER, EXIT_OK
from beanstalkd_py.server.handover import BATCH, RESERVED_DESCRIPTORS
from beanstalkd_py.server.launch import PARENT_SIGNALS, WorkerConfig
from beanstalkd_py.server.logs import set_up_logging
from beanstalkd_py.server.privileges import raise_descriptor_limit
from beanstalkd_py.server.router import Router
from beanstalkd_py.server.service import Service, log_events
from beanstalkd_py.server.shared import SharedMemory, open_connections
from beanstalkd_py.server.statistics import ServerFacts, Statistics

LOCK_PATIENCE_S = 1.0
"""A predecessor that was killed may still be leaving."""
LOCK_STEP_S = 0.01

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Runs a worker; its exit status."""
    channel_fd, connections_fd, shared_fd = map(int, arguments)
    _leave_signals_to_the_parent()
    orders = channel.Channel(socket.socket(fileno=channel_fd))
    config = _configuration(orders)
    if config is None or os.getppid() != config.parent_pid:
        return EXIT_OK  # the parent has gone already
    set_up_logging(config.verbosity)
    shared = SharedMemory(shared_fd)
    os.close(shared_fd)
    core = Core(_core_config(config), shared.pointer)
    try:
        _recover(core)
        core.adopt_from(connections_fd)
        core.watch(channel_fd)
    except errors.BeanstalkdError as error:
        log_events(core)
        orders.send(channel.FAILED, EXIT_FOLDER, _start_failure(config, error))
        return EXIT_FOLDER
    log_events(core)
    router = Router(core, config.worker, config.workers, lambda: _has_room(shared, config.worker))
    service = Service(core, router, orders, Statistics(_facts(config), shared))
    service.heed_waiting()
    orders.send(channel.READY)
    return service.run()


def _leave_signals_to_the_parent() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    for number in PARENT_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # The parent started us with these blocked; ignored is enough now.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENT_SIGNALS)


def _configuration(orders: channel.Channel) -> WorkerConfig | None:
    match orders.receive():
        case [channel.CONFIGURE, dict(values)]:
            typed: dict[str, Any] = values
            return WorkerConfig(**typed)
        case _:
            return None


def _recover(core: Core) -> None:
    deadline_mono = time.monotonic() + LOCK_PATIENCE_S
    while True:
        try:
            return core.recover()
        except errors.BinlogLockedError:
            if time.monotonic() > deadline_mono:
                raise
        time.sleep(LOCK_STEP_S)


def _start_failure(config: WorkerConfig, error: errors.BeanstalkdError) -> str:
    folder = os.fsdecode(config.binlog_dir or b"")
    if isinstance(error, errors.BinlogLockedError):
        return f"binlog folder {folder} is locked by another process; is a server running on it?"
    return f"binlog folder {folder}: {error}"


def _has_room(shared: SharedMemory, worker: int) -> bool:
    """Whether another worker may move a connection here; a batch of the parent must still fit."""
    capacity = raise_descriptor_limit() - RESERVED_DESCRIPTORS - BATCH
    return open_connections(shared.counters(worker)) < capacity


def _core_config(config: WorkerConfig) -> CoreConfig:
    folder = config.binlog_dir
    return CoreConfig(
        binlog_dir=os.fsdecode(folder) if folder is not None else None,
        file_size=config.file_size,
        sync_interval_ns=config.sync_interval_ns,
        max_job_size=config.max_job_size,
        worker=config.worker,
        workers=config.workers,
        colocate=config.colocate,
    )


def _facts(config: WorkerConfig) -> ServerFacts:
    return ServerFacts(
        parent_pid=config.parent_pid,
        instance_id=config.instance_id,
        started_mono=config.started_mono,
        max_job_size=config.max_job_size,
        file_size=config.file_size,
    )


if __name__ == "__main__":
    status = EXIT_ERROR
    try:
        status = main(sys.argv[1:])
    finally:
        # The next server waits for nothing that an interpreter tidies up at its end.
        sys.stderr.flush()
        if sys.exc_info()[0] is None:
            os._exit(status)
