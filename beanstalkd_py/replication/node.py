"""A server of a replicated queue: a standby that follows the streams, until it is the primary.

N1  A server becomes the primary in this order: it has the lease; every stream ends with its
    fence; its folder is the streams, byte by byte.
N2  Until the streams have everything that the first folder had, no other server can be the
    primary.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from beanstalkd_py import errors
from beanstalkd_py.archiver.folder_identity import set_identity
from beanstalkd_py.binlog.layout import binlog_files, number_of
from beanstalkd_py.core.shared_memory import BinlogPosition
from beanstalkd_py.replication.folder_copy import CopyState, FolderCopy, bytes_between
from beanstalkd_py.replication.lease import Keys, Lease
from beanstalkd_py.replication.log import (
    CONFIGURATION,
    JOINED,
    RESIGNED,
    SERVER_PREFIX,
    LogUnavailableError,
    StreamEnds,
    WrongSequenceError,
)
from beanstalkd_py.replication.membership import Configuration, Member
from beanstalkd_py.replication.piece import Piece, PieceError
from beanstalkd_py.replication.queue_files import QueueFiles
from beanstalkd_py.replication.replica_state import ReplicaRecord
from beanstalkd_py.replication.stream_writer import SHORT_S, Stream, StreamWriter

LOGGER = logging.getLogger("beanstalkd_py")

POLL_S = 0.2
"""How often a standby looks for new messages."""
OBSERVE_S = 0.5
"""How often a standby looks at the lease."""
SAVE_S = 1.0
FILES_S = 5.0
"""How often a standby copies the files beside the binlog."""
RENEWALS = 4
"""Renewals within the duration of the lease."""
RETRY_S = 0.25

Result = TypeVar("Result")
Copied = Callable[[int, BinlogPosition], None]
"""Receives the number of a worker, and up to where its folder is a copy of its stream."""


class NodeLog(Stream, Keys, Protocol):
    """The replicated log."""

    async def create(self, workers: int) -> None: ...
    async def ends(self, worker: int) -> StreamEnds: ...
    async def listen(self, signal: str, received: Callable[[], object]) -> None: ...
    async def tell(self, signal: str) -> None: ...
    async def report(self, key: str, value: dict[str, Any]) -> None: ...
    async def read(
        self, worker: int, after: int, last: int, state: CopyState
    ) -> list[tuple[int, Piece]]: ...


@dataclass(frozen=True, slots=True)
class ServerReport:
    """What a server reports about itself: the key `key_of`(address).

    `sequences` are the last messages of the streams that it has, and `positions` their ends.
    `time_s` is its wall clock, and `complete_s` that when it last had all messages, or when it
    joined the queue. Only a history needs messages that the binlog does not need any more.
    """

    address: str
    sequences: list[int]
    time_s: float
    complete_s: float = 0.0
    has_history: bool = False
    positions: list[BinlogPosition] = field(default_factory=list)


def ignore(worker: int, position: BinlogPosition) -> None:
    """Do nothing with a position."""


def _difference(damaged: Sequence[Path]) -> str:
    return "not as in the stream: " + ", ".join(path.name for path in damaged)


def key_of(address: str) -> str:
    return f"{SERVER_PREFIX}." + re.sub("[^A-Za-z0-9.-]", "_", address)


class Node:
    """One server. `top` is its binlog folder, `folders` those of its workers, which exist.

    With `has_history` an archiver reads these folders up to the durable position.
    """

    def __init__(
        self,
        log: NodeLog,
        lease: Lease,
        top: Path,
        folders: Sequence[Path],
        colocate: str | None,
        has_history: bool = False,
    ) -> None:
        self._log = log
        self._has_history = has_history
        self._lease = lease
        self._folders = list(folders)
        self._member = Member(top, self._folders, colocate)
        self._configuration = Configuration("", 0)
        self._revision = 0
        self._is_origin = False
        self._copies: list[FolderCopy] = []
        self._writers: list[StreamWriter] = []
        self._saved_mono = 0.0
        self._saving: asyncio.Task[None] | None = None
        self._unavailable = ""
        self._record = ReplicaRecord(top)
        self._behind = 0
        self._has_caught_up = False
        self._complete_s = 0.0
        self._is_primary = False
        self.files = QueueFiles(log, lease, top, self._until_available)
        self._files_mono = 0.0
        self._short_since_mono: float | None = None
        """Since when a stream seems to lack messages that this server has."""

    @property
    def behind(self) -> int:
        """How many messages a standby has not read."""
        return self._behind

    @property
    def unavailable(self) -> str:
        """The last error of the log, empty if it answers."""
        found = (self._unavailable, *(writer.unavailable for writer in self._writers))
        return next(filter(None, found), "")

    async def report(self) -> None:
        """Publish what this server has, for `cluster status`; not if the log is unavailable.

        Messages that are not recorded do not count: a server that is killed reads them again, so
        the primary must not purge them.
        """
        if self._is_primary:
            self._complete_s = time.time()
        report = ServerReport(
            self._lease.address,
            self._record.sequences,
            time.time(),
            self._complete_s,
            self._has_history,
            self._record.positions,
        )
        with contextlib.suppress(LogUnavailableError):
            await self._log.report(key_of(report.address), asdict(report))

    # --- start --------------------------------------------------------------------------------

    async def open(self) -> None:
        """Join the queue, or begin it with this folder.

        Raises ReplicationError if the folder does not belong to it, BinlogFolderError, OSError.
        """
        await self._until_available(partial(self._log.create, len(self._folders)))
        await self._until_available(self._join)
        found = self._configuration
        found.check(len(self._folders), self._member.colocate)
        replica = self._member.replica_of(found.identity)
        self._is_origin = replica.is_origin and not found.is_complete
        states = replica.shards
        if self._is_origin or len(states) != len(self._folders):
            states = [CopyState() for _ in self._folders]
        self._copies = [
            FolderCopy(folder, state, self._has_history)
            for folder, state in zip(self._folders, states, strict=True)
        ]
        if self._has_history:
            derived = [f"{found.identity}-{worker}" for worker in range(len(self._folders))]
            ids = found.history_ids or derived
            for folder, text in zip(self._folders, ids, strict=True):
                set_identity(folder, text)
        for copy in self._copies:
            damaged = copy.damaged_files()
            if damaged:  # a server that started on them would lose their jobs
                LOGGER.error("%s: %s; copying again", copy.folder, _difference(damaged))
                copy.begin_again()
        replica = replace(replica, is_origin=self._is_origin)
        self._record.open(replica, [copy.state for copy in self._copies])
        # A start does not count as complete, because a server without disk space repeats it.
        last = await self._until_available(partial(self._log.get, key_of(self._lease.address)))
        self._complete_s = time.time() if last is None else last.decode(ServerReport).complete_s
        # So that the primary keeps messages for this server from now on.
        await self.report()
        await self._until_available(partial(self._log.tell, JOINED))

    async def _join(self) -> None:
        self._configuration, self._revision = await self._member.join(self._log)

    # --- standby ------------------------------------------------------------------------------

    async def stand_by(self, copied: Copied = ignore, synced: Copied = ignore) -> None:
        """Follow the streams until this server has the lease.

        Calls `copied` for each worker at the start and after each change, and `synced` at intervals
        when the copy is on disk, after it has been complete once.
        Raises ReplicationError if the streams are damaged or contradict the folder, or OSError.
        """
        observed_mono = 0.0
        reported: list[BinlogPosition] = []
        resigned = asyncio.Event()
        await self._until_available(partial(self._log.listen, RESIGNED, resigned.set))
        while True:
            if resigned.is_set():
                resigned.clear()
                observed_mono = 0.0
            try:
                await self._follow(synced)
                positions = [copy.state.position for copy in self._copies]
                if positions != reported:
                    reported = positions
                    for worker, position in enumerate(positions):
                        copied(worker, position)
                if time.monotonic() - observed_mono >= OBSERVE_S:
                    is_free = await self._lease.observe()
                    # The last messages before the end of a lease are few: look again after them.
                    observed_mono = 0.0 if is_free and self._behind else time.monotonic()
                    can_take = is_free and self._behind == 0 and self._may_lead
                    if can_take and await self._lease.take():
                        return
                self._unavailable = ""
            except LogUnavailableError as error:
                self._unavailable = str(error)
            with contextlib.suppress(TimeoutError):
                has_more = self._behind > 0 and not self._unavailable
                async with asyncio.timeout(0 if has_more else POLL_S):
                    await resigned.wait()

    @property
    def _may_lead(self) -> bool:
        """Whether this server may be the primary (N2)."""
        return self._configuration.is_complete or self._is_origin

    async def _follow(self, synced: Copied) -> None:
        """Read one batch of each stream."""
        if self._is_origin:
            return
        if not self._configuration.is_complete:
            await self._join()
            return
        behind = 0
        for worker, copy in enumerate(self._copies):
            ends = await self._log.ends(worker)
            self._check_ends(worker, copy, ends)
            if ends.last > copy.state.sequence:
                await self._read(worker, ends)
            behind += ends.last - copy.state.sequence
        self._behind = behind
        self._short_since_mono = None
        if behind == 0:
            self._has_caught_up = True
            self._complete_s = time.time()
        if time.monotonic() - self._saved_mono >= SAVE_S:
            self._saved_mono = time.monotonic()
            self._record.save([copy.sync() for copy in self._copies], is_primary=False)
            for worker, copy in enumerate(self._copies):
                if self._has_caught_up:
                    synced(worker, copy.state.position)
        if time.monotonic() - self._files_mono >= FILES_S:
            self._files_mono = time.monotonic()
            await self.files.copy()

    def _check_ends(self, worker: int, copy: FolderCopy, ends: StreamEnds) -> None:
        """Raise LogUnavailableError if the stream lacks messages, ReplicationError if that lasts.

        A leader that was just elected, or that is cut off, may answer with fewer messages.
        """
        if ends.last >= copy.state.sequence and ends.first <= max(ends.last, 1):
            return
        text = (
            f"stream {worker} has messages {ends.first} to {ends.last}, but this folder has"
            f" {copy.state.sequence}: NATS has lost messages, or the stream was purged or replaced"
        )
        now_mono = time.monotonic()
        self._short_since_mono = self._short_since_mono or now_mono
        if now_mono - self._short_since_mono >= SHORT_S:
            raise errors.ReplicationError(text)
        raise LogUnavailableError(text)

    async def _read(self, worker: int, ends: StreamEnds) -> None:
        """Apply the next messages, at most up to the end of the stream."""
        copy = self._copies[worker]
        # This jump is the only one: messages that were purged.
        after = max(copy.state.sequence, ends.first - 1)
        if self._has_history and 0 < copy.state.sequence < after:
            LOGGER.warning(
                "%s: messages %d to %d were purged before this server has read them; its history"
                " lacks the jobs that ended there",
                copy.folder,
                copy.state.sequence + 1,
                after,
            )
        try:
            for sequence, piece in await self._log.read(worker, after, ends.last, copy.state):
                copy.apply(piece, sequence)
        except PieceError as error:
            if copy.is_fresh:
                raise
            raise self._restart(copy, str(error)) from error

    def _restart(self, copy: FolderCopy, reason: str) -> errors.ReplicationError:
        """Let a copy begin again; return the error that ends this server for it.

        The workers have jobs of the copy in memory, so they have to begin again, too.
        """
        copy.begin_again()
        self._record.save([one.sync() for one in self._copies], is_primary=False)
        return errors.ReplicationError(f"{copy.folder}: {reason}; copying again")

    # --- primary ------------------------------------------------------------------------------

    async def become_primary(self) -> None:
        """Fence the streams and make the folder equal to them (N1), while `keep_lease` runs.

        Raises FencedError if another server was faster, and errors as `stand_by`.
        """
        if self._is_origin:
            await self._claim_origin()
        for worker, copy in enumerate(self._copies):
            if self._is_origin:
                # An earlier attempt may have stored a part of the folder.
                ends = await self._until_available(partial(self._log.ends, worker))
                if 0 < ends.first <= ends.last:
                    await self._until_available(partial(self._log.purge, worker, ends.last + 1))
                copy.state.sequence = ends.last
            await self._catch_up(worker)
            if short := copy.short_files():
                raise self._restart(copy, _difference(short))
            writer = StreamWriter(self._log, worker, copy.folder, copy.state)
            self._writers.append(writer)
            await self._fence(writer, worker)
        if not self._is_origin:
            for copy in self._copies:
                copy.cut()
            self._record.save([copy.sync() for copy in self._copies], is_primary=True)
        await self.files.take_over(is_origin=self._is_origin)
        self._is_primary = True

    async def _claim_origin(self) -> None:
        """Check that the streams are still incomplete. Raises ReplicationError if they are not."""
        claim = partial(self._log.put, CONFIGURATION, asdict(self._configuration), self._revision)
        try:
            self._revision = await self._until_available(claim)
        except WrongSequenceError as error:
            text = "the first content of the queue was completed meanwhile; starting again"
            raise errors.ReplicationError(text) from error

    async def _fence(self, writer: StreamWriter, worker: int) -> None:
        while True:
            try:
                return await writer.fence(self._lease.epoch)
            except WrongSequenceError:
                if self._is_origin:
                    raise
            await self._catch_up(worker)

    async def _catch_up(self, worker: int) -> None:
        """Read to the present end of the stream."""
        if self._is_origin:
            return
        ends = await self._until_available(partial(self._checked_ends, worker))
        while self._copies[worker].state.sequence < ends.last:
            await self._until_available(partial(self._read, worker, ends))

    async def _checked_ends(self, worker: int) -> StreamEnds:
        ends = await self._log.ends(worker)
        self._check_ends(worker, self._copies[worker], ends)
        return ends

    async def keep_lease(self, renewed: Callable[[int], None]) -> None:
        """Renew the lease; report each new end. Raises ReplicationError when it is lost."""
        pause_s = self._lease.duration_s / RENEWALS
        while True:
            renewed(self._lease.end_ns)
            await asyncio.sleep(pause_s)
            try:
                await self._lease.renew()
                self._unavailable = ""
                pause_s = self._lease.duration_s / RENEWALS
            except LogUnavailableError as error:
                self._unavailable = str(error)
                pause_s = RETRY_S
            if self._lease.has_ended:
                raise errors.ReplicationError(
                    f"the lease has ended, because it could not be renewed: {self._unavailable}"
                )

    async def store(self, worker: int, position: BinlogPosition) -> None:
        """Store a worker's binlog up to a position; return when it is stored.

        Raises FencedError if another server is the primary, ReplicationError, OSError.
        """
        await self._writers[worker].write_until(position)

    async def complete(self) -> None:
        """Record that the streams have everything that this folder had at its start (N2)."""
        if not self._is_origin:
            return
        complete = replace(self._configuration, is_complete=True)
        change = partial(self._log.put, CONFIGURATION, asdict(complete), self._revision)
        try:
            self._revision = await self._until_available(change)
        except WrongSequenceError:
            # An attempt of unknown outcome has changed it: no other server may.
            await self._until_available(self._join)
            if self._configuration != complete:
                raise
        self._configuration, self._is_origin = complete, False

    async def record(self) -> None:
        """Record what is stored, at intervals."""
        is_saving = self._saving is not None and not self._saving.done()
        is_due = time.monotonic() - self._saved_mono >= SAVE_S
        if is_due and not is_saving and not self._is_origin:
            self._saved_mono = time.monotonic()
            # Copied before others of this loop count further messages.
            states = self._stored_states()
            self._saving = asyncio.create_task(asyncio.to_thread(self._save_primary, states))
            await asyncio.shield(self._saving)

    async def purge(self, standbys: Sequence[Sequence[int]]) -> None:
        """Purge messages that neither this server nor one of these standbys needs.

        `standbys` has their last messages, each by worker, as they have just been read. Others that
        join before the next call have reported before it, so nothing they need is purged.
        """
        if not self._is_primary:
            return
        count = len(self._folders)
        known = [sequences for sequences in standbys if len(sequences) == count]
        try:
            for worker, writer in enumerate(self._writers):
                read = [sequences[worker] for sequences in known]
                await writer.purge(min(read) + 1 if read else None)
        except LogUnavailableError as error:
            self._unavailable = str(error)

    def bytes_behind(self, positions: Sequence[BinlogPosition]) -> int:
        """Return how many bytes of this primary's folders a standby at these positions lacks."""
        ends = zip(self._folders, positions, self._writers, strict=False)
        return sum(bytes_between(folder, at, one.state.position) for folder, at, one in ends)

    async def resign(self) -> None:
        """End the lease, when everything is stored. Raises LogUnavailableError."""
        if self._saving is not None:
            await self._saving
        if self._is_primary and not self._is_origin:
            self._save_primary(self._stored_states())
        await self._lease.give_up()
        await self._log.tell(RESIGNED)

    def _stored_states(self) -> list[CopyState]:
        return [writer.state.copy() for writer in self._writers]

    def _save_primary(self, states: Sequence[CopyState]) -> None:
        """Record what is stored: the workers have synced it, and may have removed files."""
        for state, folder in zip(states, self._folders, strict=True):
            files = binlog_files(folder)
            state.drop_before(number_of(files[0]) if files else 0)
        self._record.save(states, is_primary=True)

    async def _until_available(self, call: Callable[[], Awaitable[Result]]) -> Result:
        while True:
            try:
                result = await call()
            except LogUnavailableError as error:
                self._unavailable = str(error)
                await asyncio.sleep(RETRY_S)
            else:
                self._unavailable = ""
                return result
