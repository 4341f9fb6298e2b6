"""The replicator process, from exec to exit: a standby first, then the primary's connection.

While the server is a standby, this process is all of it: it follows the streams and forwards
clients. When it has become the primary it sends PRIMARY; the parent starts the workers, and this
process stores what they offer (csrc/api/replication.h). It never becomes a standby again: it ends,
and so does the server, which the service manager restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.binlog.layout import (
    LOCK,
    POLICIES,
    SCHEDULES,
    FileLock,
    top_of,
)
from beanstalkd_py.binlog.ownership import create_as_owner_of
from beanstalkd_py.core.shared_memory import (
    LEASE_ENDED,
    BinlogPosition,
    offered_position,
    publish_durable_position,
    publish_stored_position,
    set_lease_end,
)
from beanstalkd_py.quantities import NS_PER_S
from beanstalkd_py.replication.cluster_status import STALE_S, ServerStatus, read_status
from beanstalkd_py.replication.folder_copy import bytes_between
from beanstalkd_py.replication.lease import Lease
from beanstalkd_py.replication.log import FAILOVER, JOINED, Log, LogOptions, LogUnavailableError
from beanstalkd_py.replication.node import Node
from beanstalkd_py.replication.queue_files import NAMES
from beanstalkd_py.replication.target import parse_target
from beanstalkd_py.server.logging.lines import NOTICE, LogSource
from beanstalkd_py.server.logging.setup import LOGGER, log_in_background, set_up_logging
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_ERROR, EXIT_OK, exit_status
from beanstalkd_py.server.process.messages import ProcessConfig, ReplicatorStatus
from beanstalkd_py.server.process.shared_memory import SharedMemory
from beanstalkd_py.server.replicator.cancellation import cancel_all
from beanstalkd_py.server.replicator.forwarder import Forwarder

SOURCE = LogSource(name="replicator")
NODE_BYTES = 8
STATUS_S = 0.5
REPORT_S = 5.0
CHECK_S = 60.0
"""The interval of checks of the streams' settings."""
REASON_S = 5.0
"""The interval of further reasons in the log."""
CONNECT_RETRY_S = 1.0
RESIGN_S = 5.0
PAUSES_S = {POLICIES: 0.0, SCHEDULES: 1.0}
"""The pauses between two writes of a file to the log. A crash repeats the ticks of a pause, whose
keys keep the server from inserting their jobs again."""


@dataclass(slots=True)
class Descriptors:
    """The descriptors that the parent sends before BEGIN, eventfds by worker."""

    listeners: list[socket.socket] = field(default_factory=list)
    tls_listener: socket.socket | None = None
    offered: list[int] = field(default_factory=list)
    stored: list[int] = field(default_factory=list)


def main(
    parent: channel.Channel, connections_fd: int, shared: SharedMemory, config: ProcessConfig
) -> int:
    os.close(connections_fd)
    set_up_logging(config.options.verbosity, config.options.log_format, SOURCE)
    log_in_background()
    descriptors = _receive(parent)
    if descriptors is None:
        return EXIT_OK
    create_as_owner_of(config.folders[0])
    replicator = Replicator(parent, shared, config, descriptors)
    try:
        asyncio.run(replicator.run())
    except (errors.BeanstalkdError, OSError) as error:
        set_lease_end(shared.pointer, LEASE_ENDED)
        status = exit_status(error) if isinstance(error, errors.BeanstalkdError) else EXIT_ERROR
        parent.send(channel.FAILED, status, _text_of(error))
        return status
    return EXIT_OK


def _receive(parent: channel.Channel) -> Descriptors | None:
    """Return the parent's descriptors, None if it is gone."""
    found = Descriptors()
    while True:
        message, fd = parent.receive_with_fd()
        match message:
            case [channel.LISTENER, False] if fd is not None:
                found.listeners.append(socket.socket(fileno=fd))
            case [channel.LISTENER, True] if fd is not None:
                found.tls_listener = socket.socket(fileno=fd)
            case [channel.OFFERED, int()] if fd is not None:
                found.offered.append(fd)
            case [channel.STORED, int()] if fd is not None:
                found.stored.append(fd)
            case [channel.BEGIN]:
                return found
            case _:
                return None


@dataclass(frozen=True, slots=True)
class Waiting:
    """What of a worker's binlog waits to be stored, and since when."""

    since_mono: float
    begin: BinlogPosition
    end: BinlogPosition


class Replicator:
    """One server's part in a replicated queue."""

    def __init__(
        self,
        parent: channel.Channel,
        shared: SharedMemory,
        config: ProcessConfig,
        descriptors: Descriptors,
    ) -> None:
        self._parent = parent
        self._shared = shared.pointer
        self._config = config
        self._descriptors = descriptors
        self._folders = [Path(folder) for folder in config.folders]
        self._stopping = asyncio.Event()
        self._unavailable = ""
        self._unavailable_s = 0.0
        self._waiting: dict[int, Waiting] = {}
        """By worker."""
        self._standbys: list[ServerStatus] = []
        """The running standbys that this primary knows of."""
        self._behind_bytes = 0
        """The most that one of them lacked when their reports were read."""
        self._lease: Lease | None = None
        self._node: Node | None = None
        self._saved: dict[str, list[int]] = {name: [] for name in NAMES}
        """The parent's numbers for files of the folder that are to be stored."""
        self._has_saved = {name: asyncio.Event() for name in NAMES}
        self._joined = asyncio.Event()
        """Set when another server has reported for the first time."""
        self._work_tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Run until the parent sends STOP or ends. Raises BeanstalkdError, OSError."""
        try:
            await self._run()
        finally:
            # asyncio.run cancels each task only once, and would wait for ever.
            await cancel_all(asyncio.all_tasks() - {asyncio.current_task()})

    async def _run(self) -> None:
        asyncio.get_running_loop().add_reader(self._parent.fileno(), self._handle_message)
        working = asyncio.create_task(self._work())
        tasks = [
            working,
            asyncio.create_task(self._stopping.wait()),
            asyncio.create_task(self._report()),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await cancel_all([*tasks, *self._work_tasks])
        if not working.cancelled():
            working.result()
        await self._resign()

    async def _resign(self) -> None:
        """Store the files that the parent has saved, and give up the lease of a primary."""
        if self._lease is not None and self._lease.epoch and self._node is not None:
            try:
                async with asyncio.timeout(RESIGN_S):
                    for name in NAMES:
                        if self._saved[name]:
                            await self._store_saved(self._node, name)
                    await self._node.resign()
            except (errors.ReplicationError, TimeoutError, OSError) as error:
                LOGGER.warning("cannot give up the lease, others have to wait for it: %s", error)

    def _handle_message(self) -> None:
        match self._parent.receive():
            case [channel.PING]:
                self._parent.send(channel.PONG)
            case [channel.CHANGE, dict(values)]:
                options = ServeOptions(**values)
                set_up_logging(options.verbosity, options.log_format, SOURCE)
            case [channel.SAVED, str(name), int(number)]:
                self._saved[name].append(number)
                self._has_saved[name].set()
            case _:  # STOP, or the parent is gone
                self._stopping.set()

    async def _work(self) -> None:
        options = self._config.options
        assert options.replicate is not None and options.replicate_address is not None
        log = await self._connect(options)
        duration_s = options.replicate_lease_ns / NS_PER_S
        name = os.urandom(NODE_BYTES).hex()
        tls_address = ""
        if (tls := self._descriptors.tls_listener) is not None:
            host = options.replicate_address.rpartition(":")[0]
            tls_address = f"{host}:{tls.getsockname()[1]}"
        lease = Lease(log, name, options.replicate_address, duration_s, tls_address)
        self._lease = lease
        colocate = None if options.colocate is None else options.colocate.decode("latin-1")
        top, has_history = top_of(self._folders[0]), options.history is not None
        node = Node(log, lease, top, self._folders, colocate, has_history)
        self._node = node
        await node.open()
        self._parent.send(channel.READY)
        tasks = self._work_tasks
        tasks.append(asyncio.create_task(self._publish_reports(node, log)))
        tasks.append(asyncio.create_task(watch_settings(log, len(self._folders))))
        tasks.append(await self._stand_by(node, lease))
        tasks.append(asyncio.create_task(self._serve(log, node, lease)))
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def _connect(self, options: ServeOptions) -> Log:
        target = parse_target(options.replicate or "")
        log_options = LogOptions(
            options.replicate_creds, options.replicate_tls_ca, options.replicate_copies
        )
        while True:
            try:
                return await Log.connect(target, log_options)
            except LogUnavailableError as error:
                self._unavailable = str(error)
                await asyncio.sleep(CONNECT_RETRY_S)

    async def _stand_by(self, node: Node, lease: Lease) -> asyncio.Task[None]:
        """Follow the streams and forward clients until this server has the lease.

        Returns the task that renews it.
        """
        # A server without --replicate must not use the folder meanwhile.
        locks = [FileLock(folder / LOCK) for folder in self._folders]
        listeners, tls = self._descriptors.listeners, self._descriptors.tls_listener
        forwarder = Forwarder(listeners, tls, self._config.options, self._shared.parent)
        lease.primary_changed = forwarder.primary_changed
        try:
            await node.stand_by(self._publish_stored, self._publish_durable)
            return asyncio.create_task(node.keep_lease(partial(set_lease_end, self._shared)))
        finally:
            await forwarder.close()
            for listener in (*listeners, tls):
                if listener is not None:
                    listener.close()
            for lock in locks:
                lock.close()

    def _publish_stored(self, worker: int, position: BinlogPosition) -> None:
        publish_stored_position(self._shared, worker, position)
        os.eventfd_write(self._descriptors.stored[worker], 1)

    def _publish_durable(self, worker: int, position: BinlogPosition) -> None:
        publish_durable_position(self._shared.worker[worker], position)

    async def _serve(self, log: Log, node: Node, lease: Lease) -> None:
        await node.become_primary()
        LOGGER.log(NOTICE, "this server is the primary of epoch %d", lease.epoch)
        self._parent.send(channel.PRIMARY)
        await log.listen(FAILOVER, partial(self._parent.send, channel.FAILOVER))
        await log.listen(JOINED, self._joined.set)
        self._parent.send(channel.STATUS, asdict(self._status()))  # so that metrics have the epoch
        count = len(self._folders)
        first = asyncio.Barrier(count)
        storing = (self._store(node, worker, first) for worker in range(count))
        files = (self._store_files(node, name) for name in NAMES)
        await asyncio.gather(*storing, *files, self._read_reports(node, log))

    async def _store_files(self, node: Node, name: str) -> None:
        """Store a file each time that the parent has saved it, with pauses that bound the load."""
        while True:
            await self._has_saved[name].wait()
            await self._store_saved(node, name)
            await asyncio.sleep(PAUSES_S[name])

    async def _store_saved(self, node: Node, name: str) -> None:
        """Store the present content of a file, and confirm all saves up to now."""
        self._has_saved[name].clear()
        count = len(self._saved[name])
        await node.files.store(name)
        for number in self._saved[name][:count]:
            self._parent.send(channel.SAVED, number)
        del self._saved[name][:count]

    async def _store(self, node: Node, worker: int, first: asyncio.Barrier) -> None:
        """Store what a worker offers, until this task is cancelled.

        The `first` offers of all workers have everything that was in the folder.
        """
        offers = asyncio.Event()
        fd = self._descriptors.offered[worker]
        asyncio.get_running_loop().add_reader(fd, partial(_drain, fd, offers))
        stored = BinlogPosition(0, 0)
        is_complete = False
        while True:
            await offers.wait()
            offers.clear()
            while (position := offered_position(self._shared, worker)) is None:
                continue  # the worker is changing it
            if position <= stored:
                continue
            self._waiting[worker] = Waiting(time.monotonic(), stored, position)
            await node.store(worker, position)
            del self._waiting[worker]
            stored = position
            if not is_complete:
                if await first.wait() == 0:
                    await node.complete()
                await first.wait()
                is_complete = True
            self._publish_stored(worker, stored)
            await node.record()

    async def _publish_reports(self, node: Node, log: Log) -> None:
        """Report this server; a primary also reads the reports of the others."""
        while True:
            self._joined.clear()
            await node.report()
            if self._lease is not None and self._lease.epoch:
                await self._read_reports(node, log)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPORT_S):
                    await self._joined.wait()

    async def _read_reports(self, node: Node, log: Log) -> None:
        """Read the reports of the others, and purge what nobody needs."""
        # Reports that cannot be read must not end a primary.
        with contextlib.suppress(errors.ReplicationError, TypeError):
            now_s, found = time.time(), await read_status(log)
            others = [one for one in found.servers if not one.is_primary]
            self._standbys = [one for one in others if one.runs(now_s)]
            lacks = (node.bytes_behind(one.positions) for one in self._standbys)
            self._behind_bytes = max(lacks, default=0)
            # A server that stays behind must not let the streams grow for ever.
            kept = [one for one in others if now_s - one.complete_s < self._keep_s(one)]
            await node.purge([one.sequences for one in kept])

    def _keep_s(self, server: ServerStatus) -> float:
        """Return how long messages are kept for a server. Only a history needs purged ones."""
        keep_s = self._config.options.replicate_keep_ns / NS_PER_S
        return max(STALE_S, keep_s) if server.has_history else STALE_S

    # --- the status -----------------------------------------------------------------------------

    async def _report(self) -> None:
        """Send the status, and log changes of the log's availability."""
        logged = ""
        logged_mono = 0.0
        while True:
            status = self._status()
            self._parent.send(channel.STATUS, asdict(status))
            reason, now_mono = status.unavailable, time.monotonic()
            if reason:
                self._unavailable_s += STATUS_S
            if not reason and logged:
                LOGGER.log(NOTICE, "the replicated log is available again")
                logged = ""
            elif reason != logged and (not logged or now_mono - logged_mono >= REASON_S):
                LOGGER.warning("the replicated log is not available: %s", reason)
                logged, logged_mono = reason, now_mono
            await asyncio.sleep(STATUS_S)

    def _status(self) -> ReplicatorStatus:
        if self._node is None or self._lease is None:
            return ReplicatorStatus(
                unavailable=self._unavailable, unavailable_s=self._unavailable_s
            )
        holder = self._lease.holder
        address = holder.address if holder is not None else ""
        behind, behind_s, behind_bytes = self._node.behind, 0.0, 0
        if self._lease.epoch:
            address = self._config.options.replicate_address or ""
            behind = max((one.behind for one in self._standbys), default=0)
            late = (one.time_s - one.complete_s for one in self._standbys if one.behind)
            behind_s, behind_bytes = max(late, default=0.0), self._behind_bytes
        now_mono = time.monotonic()
        waiting = self._waiting.items()
        return ReplicatorStatus(
            address,
            self._lease.epoch,
            behind,
            self._node.unavailable,
            self._unavailable_s,
            len(self._standbys),
            now_mono - min((one.since_mono for _, one in waiting), default=now_mono),
            sum(
                bytes_between(self._folders[worker], one.begin, one.end) for worker, one in waiting
            ),
            behind_s,
            behind_bytes,
            self._lease.failovers,
        )


async def watch_settings(log: Log, workers: int) -> None:
    """Log each change of the streams' settings that can lose something."""
    logged = ""
    while True:
        await asyncio.sleep(CHECK_S)
        fault = ""
        try:
            await log.check_settings(workers)
        except LogUnavailableError:
            continue
        except errors.ReplicationError as error:
            fault = str(error)
        if fault and fault != logged:
            LOGGER.error("%s", fault)
        logged = fault


def _text_of(error: errors.BeanstalkdError | OSError) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"cannot use {error.filename}: {error.strerror}"
    return str(error)


def _drain(fd: int, offers: asyncio.Event) -> None:
    os.eventfd_read(fd)
    offers.set()
