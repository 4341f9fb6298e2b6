"""A worker process, from exec to exit.

process.py runs it with CHANNEL CONNECTIONS SHARED, three descriptors from the parent. A worker
obeys its channel and nothing else: signals meant for the server reach the parent. It must not
outlive the parent, whatever kills it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from beanstalkd_py import errors
from beanstalkd_py.binlog.lock_wait import locked, patiently
from beanstalkd_py.binlog.ownership import create_as_owner_of
from beanstalkd_py.core.core import Core, CoreConfig
from beanstalkd_py.core.limits import Limits
from beanstalkd_py.server.accept.handover import BATCH, RESERVED_DESCRIPTORS
from beanstalkd_py.server.logging.lines import LogSource
from beanstalkd_py.server.logging.setup import never_block, set_up_logging
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.child import configuration, ignore_server_signals
from beanstalkd_py.server.process.exit_status import EXIT_FOLDER, EXIT_OK
from beanstalkd_py.server.process.launch import WorkerConfig
from beanstalkd_py.server.process.memory_trim import MemoryTrimmer
from beanstalkd_py.server.process.privileges import raise_descriptor_limit
from beanstalkd_py.server.process.shared_memory import SharedMemory, open_connections
from beanstalkd_py.server.stats.stats_reply import ServerInfo, StatsReply
from beanstalkd_py.server.worker.loop import WorkerLoop, log_events
from beanstalkd_py.server.worker.tracing import trace_level
from beanstalkd_py.server.worker.upcalls import UpcallHandler


def main(arguments: list[str]) -> int:
    """Runs a worker; its exit status."""
    channel_fd, connections_fd, shared_fd = map(int, arguments)
    ignore_server_signals()
    channel_ = channel.Channel(socket.socket(fileno=channel_fd))
    told = configuration(channel_)
    if told is None:
        return EXIT_OK  # the parent has gone already
    config = WorkerConfig(**told)
    source = LogSource(config.worker, several=config.workers > 1)
    set_up_logging(config.verbosity, config.log_format, source)
    never_block()
    shared = SharedMemory(shared_fd)
    os.close(shared_fd)
    if config.binlog_dir is not None:
        create_as_owner_of(os.fsdecode(config.binlog_dir))
    core = Core(_core_config(config), shared.pointer)
    core.limit(Limits(**config.limits))
    core.trace(trace_level(config.verbosity), config.slow_ns)
    try:
        patiently(core.recover)
        core.adopt_from(connections_fd)
        core.watch(channel_fd)
    except errors.BeanstalkdError as error:
        log_events(core)
        channel_.send(channel.FAILED, EXIT_FOLDER, _start_failure(config, error))
        return EXIT_FOLDER
    log_events(core)
    router = UpcallHandler(
        core, config.worker, config.workers, _room_for_moves(shared, config.worker)
    )
    counters = shared.counters(config.worker)
    memory = MemoryTrimmer(lambda: int(counters.job_bytes))
    service = WorkerLoop(core, router, channel_, StatsReply(_facts(config), shared), source, memory)
    service.heed_waiting()
    channel_.send(channel.READY)
    return service.run()


def _start_failure(config: WorkerConfig, error: errors.BeanstalkdError) -> str:
    folder = os.fsdecode(config.binlog_dir or b"")
    if isinstance(error, errors.BinlogLockedError):
        return str(locked(folder))
    return f"binlog folder {folder}: {error}"


def _room_for_moves(shared: SharedMemory, worker: int) -> Callable[[], bool]:
    """Tells whether another worker may move a connection here; the parent's next batch must fit."""
    capacity = raise_descriptor_limit() - RESERVED_DESCRIPTORS - BATCH
    counters = shared.counters(worker)
    return lambda: open_connections(counters) < capacity


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
        history=config.history,
    )


def _facts(config: WorkerConfig) -> ServerInfo:
    return ServerInfo(
        parent_pid=config.parent_pid,
        instance_id=config.instance_id,
        started_mono=config.started_mono,
        max_job_size=config.max_job_size,
        file_size=config.file_size,
    )
