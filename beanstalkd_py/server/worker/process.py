"""The worker process, from exec to exit: configuration, recovery, then the loop."""

from __future__ import annotations

import os
from collections.abc import Callable

from beanstalkd_py import errors
from beanstalkd_py.binlog.lock_wait import locked_error, retry_while_locked
from beanstalkd_py.binlog.ownership import create_as_owner_of
from beanstalkd_py.core.core import Core, CoreConfig
from beanstalkd_py.server.accept.handover import BATCH, RESERVED_DESCRIPTORS
from beanstalkd_py.server.logging.lines import LogSource
from beanstalkd_py.server.logging.setup import log_in_background, set_up_logging
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_FOLDER
from beanstalkd_py.server.process.memory_trim import MemoryTrimmer
from beanstalkd_py.server.process.messages import WorkerConfig
from beanstalkd_py.server.process.privileges import raise_descriptor_limit
from beanstalkd_py.server.process.shared_memory import SharedMemory, open_connections
from beanstalkd_py.server.stats.stats_reply import ServerInfo, StatsReply
from beanstalkd_py.server.worker.loop import WorkerLoop, log_events
from beanstalkd_py.server.worker.tracing import trace_level
from beanstalkd_py.server.worker.upcalls import UpcallHandler

CONFIG = WorkerConfig


def main(
    parent: channel.Channel, connections_fd: int, shared: SharedMemory, config: WorkerConfig
) -> int:
    """Run a worker; return its exit status."""
    options = config.options
    source = LogSource(config.worker, several=config.workers > 1)
    set_up_logging(options.verbosity, options.log_format, source)
    log_in_background()
    if config.binlog_dir is not None:
        create_as_owner_of(os.fsdecode(config.binlog_dir))
    core = Core(_core_config(config), shared.pointer)
    core.limit(options.limits)
    core.trace(trace_level(options.verbosity), options.slow_ns)
    try:
        retry_while_locked(core.recover)
        core.adopt_from(connections_fd)
        core.watch(parent.fileno())
    except errors.BeanstalkdError as error:
        log_events(core)
        parent.send(channel.FAILED, EXIT_FOLDER, _start_failure(config, error))
        return EXIT_FOLDER
    log_events(core)
    has_capacity = _capacity_check(shared, config.worker)
    upcalls = UpcallHandler(core, config.worker, config.workers, has_capacity)
    counters = shared.counters(config.worker)
    memory = MemoryTrimmer(lambda: int(counters.job_bytes))
    loop = WorkerLoop(core, upcalls, parent, StatsReply(_info(config), shared), source, memory)
    loop.handle_pending_messages()
    parent.send(channel.READY)
    return loop.run()


def _start_failure(config: WorkerConfig, error: errors.BeanstalkdError) -> str:
    folder = os.fsdecode(config.binlog_dir or b"")
    if isinstance(error, errors.BinlogLockedError):
        return str(locked_error(folder))
    return f"binlog folder {folder}: {error}"


def _capacity_check(shared: SharedMemory, worker: int) -> Callable[[], bool]:
    """Return a function that checks for one more descriptor besides the parent's next batch."""
    capacity = raise_descriptor_limit() - RESERVED_DESCRIPTORS - BATCH
    counters = shared.counters(worker)
    return lambda: open_connections(counters) < capacity


def _core_config(config: WorkerConfig) -> CoreConfig:
    folder = config.binlog_dir
    return CoreConfig(
        binlog_dir=os.fsdecode(folder) if folder is not None else None,
        file_size=config.file_size,
        sync_interval_ns=config.options.sync_interval_ns,
        max_job_size=config.options.max_job_size,
        worker=config.worker,
        workers=config.workers,
        colocate=config.colocate,
        history=config.history,
    )


def _info(config: WorkerConfig) -> ServerInfo:
    return ServerInfo(
        parent_pid=config.parent_pid,
        instance_id=config.instance_id,
        started_mono=config.started_mono,
        max_job_size=config.options.max_job_size,
        file_size=config.file_size,
    )
