"""Handles the core's upcalls: rare operations of a session that involve several workers.

Python performs job lookups, migrations and list-tubes. The core relays all other commands to other
workers itself (csrc/workers/remote_commands.h).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgpack

from beanstalkd_py.core.clocks import read_clocks
from beanstalkd_py.core.coordination import Migration, UpcallKind
from beanstalkd_py.core.core import Core
from beanstalkd_py.server.logging.setup import LOGGER

NOT_FOUND = b"NOT_FOUND\r\n"
INTERNAL_ERROR = b"INTERNAL_ERROR\r\n"
SLOW_NS = 1_000_000_000
"""After this time a list-tubes fails if shards have not replied."""

Frame = list[Any]
"""The content of a PYTHON frame (csrc/api/server.h), a msgpack array: a kind and arguments."""


class Kind(enum.IntEnum):
    """The kinds of frames, with their arguments."""

    HELD_QUERY = 1  # session
    HELD_REPLY = 2  # session, number of reserved jobs, whether it has capacity for a connection
    TUBES_QUERY = 3  # session
    TUBES_REPLY = 4  # session, [[number, name], ...]
    MOVE = 5  # the fields of a Migration but its descriptor, which the message carries


@dataclass(slots=True)
class PendingMigration:
    """A connection that moves to `shard` if the shards in `awaited` report no reserved jobs."""

    shard: int
    awaited: set[int]


@dataclass(slots=True)
class Listing:
    """A list-tubes that waits for the shards in `awaited`. `tubes` are pairs of number and name."""

    awaited: set[int]
    tubes: list[tuple[int, bytes]]
    started_mono: int


class JobLookup:
    """A command for a job with an unknown owner, which one shard after the other executes.

    The job owners (csrc/queue/job_owners.h) forget only very old ids.
    """

    def __init__(self, line: bytes, shards: list[int]) -> None:
        self.line = line
        self._shards = shards
        self.shard: int | None = None
        self._reply = b""

    def next_shard(self) -> int | None:
        """Return the next shard to query, or None after the last."""
        self._reply = b""
        self.shard = self._shards.pop(0) if self._shards else None
        return self.shard

    def add_output(self, data: bytes) -> bytes | None:
        """Return the reply, or None while it can still become NOT_FOUND."""
        self._reply += data
        return None if NOT_FOUND.startswith(self._reply) else self._reply

    @property
    def not_found(self) -> bool:
        return self._reply == NOT_FOUND


class UpcallHandler:
    """The upcalls of one worker.

    `has_capacity` returns whether this worker can adopt one more connection.
    """

    def __init__(
        self, core: Core, workers: int, has_capacity: Callable[[], bool] = lambda: True
    ) -> None:
        self._has_capacity = has_capacity
        self._core = core
        self._workers = workers
        self._pack = msgpack.Packer().pack
        self._peers: set[int] = set()
        self._lookups: dict[int, JobLookup] = {}
        self._migrations: dict[int, PendingMigration] = {}
        self._listings: dict[int, Listing] = {}

    # --- peers --------------------------------------------------------------------------------

    def add_peer(self, shard: int, fd: int) -> None:
        """Add or replace the link to another worker. The core owns the socket."""
        self.handle_all()  # the upcalls of the old link
        if shard in self._peers:
            self._remove_peer(shard)
        self._core.add_peer(shard, fd)
        self._peers.add(shard)
        self.handle_all()

    def _remove_peer(self, shard: int) -> None:
        self._peers.remove(shard)
        self._core.lose_peer(shard)
        for session, lookup in list(self._lookups.items()):
            if lookup.shard == shard:
                self._query_next(session, lookup)
        for session, move in list(self._migrations.items()):
            if shard in move.awaited or shard == move.shard:
                self._cancel_migration(session)
        for session, listing in list(self._listings.items()):
            if shard in listing.awaited:
                self._fail_listing(session)

    # --- upcalls ------------------------------------------------------------------------------

    def handle_all(self) -> None:
        """Handle all upcalls, then flush the links."""
        while True:
            while (upcall := self._core.next_upcall()) is not None:
                self._handle(upcall)
            if not self._core.resume_peers():
                break
        self._core.flush()

    def _handle(self, upcall: Any) -> None:
        core, session, shard = self._core, int(upcall.session), int(upcall.shard)
        match upcall.kind:
            case UpcallKind.FRAME:
                fd = int(upcall.fd)
                frame = msgpack.unpackb(core.upcall_bytes(upcall))
                self._handle_frame(shard, frame, fd if fd >= 0 else None)
            case UpcallKind.OUTPUT:
                self._output(shard, session, core.upcall_bytes(upcall))
            case UpcallKind.PEER_CLOSED:
                LOGGER.info("worker %d ended; its tubes are unavailable until it restarts", shard)
                self._remove_peer(shard)
            case UpcallKind.PROTOCOL_ERROR:
                raise ValueError(f"worker {shard} sent an invalid frame")
            case UpcallKind.SESSION_CLOSED:
                self._forget(session)
            case UpcallKind.FIND_JOB:
                lookup = JobLookup(core.upcall_bytes(upcall), sorted(self._peers))
                self._lookups[session] = lookup
                self._query_next(session, lookup)
            case UpcallKind.LIST_TUBES:
                self._list_tubes(session)
            case UpcallKind.MIGRATE:
                self._prepare_migration(session, shard, set(core.upcall_bytes(upcall)))
            case unknown:
                raise ValueError(f"the core sent an upcall of unknown kind {unknown}")

    def _forget(self, session: int) -> None:
        self._lookups.pop(session, None)
        self._migrations.pop(session, None)
        self._listings.pop(session, None)

    # --- frames -------------------------------------------------------------------------------

    def _send(self, shard: int, frame: Frame) -> None:
        self._core.send(shard, self._pack(frame))

    def _handle_frame(self, shard: int, frame: Frame, fd: int | None) -> None:
        match frame:
            case [Kind.HELD_QUERY, session]:
                held = self._core.holds(self._core.proxy(shard, session))
                self._send(shard, [Kind.HELD_REPLY, session, held, self._has_capacity()])
            case [Kind.TUBES_QUERY, session]:
                self._send(shard, [Kind.TUBES_REPLY, session, self._core.tubes()])
            case [Kind.HELD_REPLY, session, held, has_capacity]:
                self._on_held(session, shard, held, has_capacity)
            case [Kind.TUBES_REPLY, session, tubes]:
                self._on_tubes(session, shard, tubes)
            case [Kind.MOVE, *rest] if fd is not None:
                self._core.attach(Migration(fd, *rest))
            case [Kind.MOVE, *_]:
                LOGGER.error("closed a moved connection: too many open files; raise ulimit -n")
                self._core.migration_lost(shard)
            case _:
                raise ValueError(f"worker {shard} sent an unknown frame: {frame!r}")

    def _output(self, shard: int, session: int, data: bytes) -> None:
        lookup = self._lookups.get(session)
        if lookup is None:
            return  # the connection is closed
        reply = lookup.add_output(data)
        if reply is not None:
            del self._lookups[session]
            self._core.expect(session, shard)
            self._core.relay_output(session, shard, reply)
        elif lookup.not_found:
            self._query_next(session, lookup)

    def _query_next(self, session: int, lookup: JobLookup) -> None:
        shard = lookup.next_shard()
        while shard is not None and shard not in self._peers:
            shard = lookup.next_shard()
        if shard is not None:
            self._core.feed_proxy(shard, session, lookup.line)
            return
        del self._lookups[session]
        complete = len(self._peers) == self._workers - 1
        self._core.answer(session, NOT_FOUND if complete else INTERNAL_ERROR)

    # --- migration ----------------------------------------------------------------------------

    def _prepare_migration(self, session: int, shard: int, may_hold: set[int]) -> None:
        awaited = may_hold | {shard}
        if awaited - self._peers:
            self._core.cancel_migration(session)
            return
        self._migrations[session] = PendingMigration(shard, awaited)
        for other in awaited:
            self._core.send(other, self._pack([Kind.HELD_QUERY, session]), session=session)

    def _on_held(self, session: int, shard: int, held: int, has_capacity: bool) -> None:
        move = self._migrations.get(session)
        if move is None:
            return
        move.awaited.discard(shard)
        if held or (shard == move.shard and not has_capacity):
            self._cancel_migration(session)
        elif not move.awaited:
            self._migrate(session, move.shard)

    def _migrate(self, session: int, shard: int) -> None:
        self._migrations.pop(session, None)
        migration = self._core.detach(session, shard)
        if migration is not None:
            fd, *rest = migration
            self._core.send(shard, self._pack([Kind.MOVE, *rest]), fd=fd)

    def _cancel_migration(self, session: int) -> None:
        del self._migrations[session]
        self._core.cancel_migration(session)

    # --- list-tubes ---------------------------------------------------------------------------

    def _list_tubes(self, session: int) -> None:
        if len(self._peers) < self._workers - 1:
            self._core.answer(session, INTERNAL_ERROR)  # as for each tube that would be missing
            return
        listing = Listing(set(self._peers), self._core.tubes(), _now_mono())
        self._listings[session] = listing
        for shard in listing.awaited:
            self._send(shard, [Kind.TUBES_QUERY, session])
        self._answer_listing(session, listing)

    def _on_tubes(self, session: int, shard: int, tubes: list[tuple[int, bytes]]) -> None:
        listing = self._listings.get(session)
        if listing is not None and shard in listing.awaited:
            listing.awaited.discard(shard)
            listing.tubes.extend((number, name) for number, name in tubes)
            self._answer_listing(session, listing)

    def fail_slow_listings(self) -> None:
        """Reply INTERNAL_ERROR to each list-tubes after SLOW_NS; the loop calls this repeatedly."""
        since_mono = _now_mono() - SLOW_NS
        for session, listing in list(self._listings.items()):
            if listing.started_mono < since_mono:
                self._fail_listing(session)

    def _fail_listing(self, session: int) -> None:
        del self._listings[session]
        self._core.answer(session, INTERNAL_ERROR)  # as for each tube that would be missing

    def _answer_listing(self, session: int, listing: Listing) -> None:
        if listing.awaited:
            return
        del self._listings[session]
        names = b"".join(b"- %b\n" % name for _, name in sorted(listing.tubes))
        self._core.answer(session, b"OK %d\r\n---\n%b\r\n" % (len(names) + 4, names))


def _now_mono() -> int:
    return read_clocks().mono
