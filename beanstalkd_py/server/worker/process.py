"""The worker process, from exec to exit: configuration, recovery, then the loop."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from functools import partial

from beanstalkd_py import errors
from beanstalkd_py.binlog.lock_wait import locked_error, retry_while_locked
from beanstalkd_py.binlog.ownership import create_as_owner_of
from beanstalkd_py.core.core import Core, CoreConfig
from beanstalkd_py.core.shared_memory import BinlogPosition, stored_position
from beanstalkd_py.server.accept.handover import BATCH, DESCRIPTORS_PER_LINK, RESERVED_DESCRIPTORS
from beanstalkd_py.server.logging.lines import LogSource
from beanstalkd_py.server.logging.setup import log_in_background, set_up_logging
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_FOLDER, EXIT_OK
from beanstalkd_py.server.process.memory_trim import MemoryTrimmer
from beanstalkd_py.server.process.messages import ProcessConfig
from beanstalkd_py.server.process.privileges import raise_descriptor_limit
from beanstalkd_py.server.process.shared_memory import SharedMemory, open_connections
from beanstalkd_py.server.stats.stats_reply import StatsReply
from beanstalkd_py.server.worker.loop import WorkerLoop, log_events, set_limits
from beanstalkd_py.server.worker.upcalls import UpcallHandler


def main(
    parent: channel.Channel, connections_fd: int, shared: SharedMemory, config: ProcessConfig
) -> int:
    options, index = config.options, config.index
    source = LogSource(index, several=options.workers > 1)
    set_up_logging(options.verbosity, options.log_format, source)
    log_in_background()
    for folder in config.folders:
        create_as_owner_of(folder)
    core = Core(_core_config(config), shared.pointer)
    set_limits(core, options)
    try:
        if options.replicate is not None:
            stored_fd, primary_options = _replicate(core, parent)
            if primary_options is None:
                copied = partial(stored_position, shared.pointer, index)
                primary_options = _follow(core, parent, stored_fd, copied)
            if primary_options is None:
                return EXIT_OK
            options = primary_options
        retry_while_locked(core.recover)
        if options is not config.options:
            # A standby has no online policies, and a core that follows cannot change any.
            set_limits(core, options)
        core.adopt_from(connections_fd)
        core.watch(parent.fileno())
    except errors.BeanstalkdError as error:
        log_events(core)
        parent.send(channel.FAILED, EXIT_FOLDER, _start_failure(config, error))
        return EXIT_FOLDER
    log_events(core)
    has_capacity = _capacity_check(shared, index, options.workers)
    upcalls = UpcallHandler(core, options.workers, has_capacity)
    counters = shared.counters(index)
    memory = MemoryTrimmer(lambda: int(counters.job_bytes))
    loop = WorkerLoop(core, upcalls, parent, StatsReply(config, shared), source, memory)
    loop.handle_pending_messages()
    parent.send(channel.READY)
    return loop.run()


def _replicate(core: Core, parent: channel.Channel) -> tuple[int, ServeOptions | None]:
    """Receive the eventfds of the worker's replica; return that of the replicator.

    Also returns the options of a worker that replaces another one of a primary. It must not follow:
    its files were written by its predecessor, which may have failed to sync them.
    Raises CoreError, WorkerError.
    """
    events: dict[str, int] = {}
    primary_options: ServeOptions | None = None
    while len(events) < 2:
        match parent.receive_with_fd():
            case [channel.PRIMARY, dict(values)], _:
                primary_options = ServeOptions(**values)
            case [str(name), int()], int(fd):
                events[name] = fd
            case _:
                raise errors.WorkerError("the parent ended", EXIT_OK)
    core.replicate(events[channel.OFFERED], events[channel.STORED])
    return events[channel.STORED], primary_options


def _follow(
    core: Core,
    parent: channel.Channel,
    stored_fd: int,
    copied: Callable[[], BinlogPosition | None],
) -> ServeOptions | None:
    """Read what the replicator has copied until this server is the primary; None: a stop.

    Returns the options of the primary. Raises CoreError.
    """
    while True:
        position = copied()
        if position is not None and position.file:
            core.follow(position)
            log_events(core)
        readable = select.select([parent.fileno(), stored_fd], [], [])[0]
        if stored_fd in readable:
            os.eventfd_read(stored_fd)
        if parent.fileno() in readable:
            match parent.receive():
                case [channel.PRIMARY, dict(values)]:
                    return ServeOptions(**values)
                case _:
                    return None


def _start_failure(config: ProcessConfig, error: errors.BeanstalkdError) -> str:
    folder = config.folders[0] if config.folders else ""
    if isinstance(error, errors.BinlogLockedError):
        return str(locked_error(folder))
    return f"binlog folder {folder}: {error}"


def _capacity_check(shared: SharedMemory, worker: int, workers: int) -> Callable[[], bool]:
    """Return a function that checks for a descriptor beyond those of the parent's next batch."""
    links = DESCRIPTORS_PER_LINK * (workers - 1)
    capacity = raise_descriptor_limit() - RESERVED_DESCRIPTORS - links - BATCH
    counters = shared.counters(worker)
    return lambda: open_connections(counters) < capacity


def _core_config(config: ProcessConfig) -> CoreConfig:
    options = config.options
    return CoreConfig(
        binlog_dir=config.folders[0] if config.folders else None,
        file_size=options.file_size,
        sync_interval_ns=options.sync_interval_ns,
        max_job_size=options.max_job_size,
        worker=config.index,
        workers=options.workers,
        colocate=options.colocate,
        history=options.history is not None,
        body_memory=options.body_memory_of_worker(),
    )
