"""Handles the core's upcalls: everything that a session needs of several workers.

Python decides multi-shard reserves, job lookups, migrations and list-tubes. The core relays all
other commands to other workers itself (csrc/links/worker_links.h).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgpack

from beanstalkd_py.core.clocks import read_clocks
from beanstalkd_py.core.coordination import Head, Migration, Outcome, UpcallKind
from beanstalkd_py.core.core import Core
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.worker.frames import Frame, Kind
from beanstalkd_py.server.worker.multi_shard_reserve import (
    INTERNAL_ERROR,
    MultiShardReserve,
    Phase,
)
from beanstalkd_py.server.worker.peer_requests import PeerRequests

NOT_FOUND = b"NOT_FOUND\r\n"
SLOW_NS = 1_000_000_000
"""After this time a reserve ignores shards that have not responded, and a list-tubes fails.

Long enough for a slow disk, because a reserve without a timeout may then miss a job.
"""


@dataclass(slots=True)
class PendingMigration:
    """A connection that moves to `shard` if the shards in `awaited` report no reserved jobs."""

    shard: int
    awaited: set[int]


@dataclass(slots=True)
class Listing:
    """A list-tubes that waits for the shards in `awaited`. `tubes` are (number, name)."""

    awaited: set[int]
    tubes: list[tuple[int, bytes]]
    started_mono: int


class JobLookup:
    """A command for a job with an unknown owner. It goes to one shard after the other.

    The job owners (csrc/queue/job_owners.h) forget only very old ids.
    """

    def __init__(self, line: bytes, shards: list[int]) -> None:
        self.line = line
        self._shards = shards
        self.shard: int | None = None
        self._reply = b""

    def next_shard(self) -> int | None:
        """Return the next shard to ask, or None after the last."""
        self._reply = b""
        self.shard = self._shards.pop(0) if self._shards else None
        return self.shard

    def on_output(self, data: bytes) -> bytes | None:
        """Return the reply so far unless it can be NOT_FOUND."""
        self._reply += data
        return None if NOT_FOUND.startswith(self._reply) else self._reply

    @property
    def not_found(self) -> bool:
        return self._reply == NOT_FOUND


class UpcallHandler:
    """The upcalls of one worker, `shard`. Implements Shards for the reserves of its sessions.

    `has_capacity` returns whether this worker can adopt one more connection.
    """

    def __init__(
        self,
        core: Core,
        shard: int,
        workers: int,
        has_capacity: Callable[[], bool] = lambda: True,
    ) -> None:
        self.home = shard
        self._has_capacity = has_capacity
        self._core = core
        self._workers = workers
        self._pack = msgpack.Packer().pack
        self._peers: dict[int, PeerRequests] = {}
        self._reserves: dict[int, MultiShardReserve] = {}
        self._lookups: dict[int, JobLookup] = {}
        self._deferred: dict[int, Callable[[], None]] = {}
        """Requests to this shard that wait until pending claims are decided, by session."""
        self._migrations: dict[int, PendingMigration] = {}
        self._listings: dict[int, Listing] = {}
        self._later: deque[Callable[[], None]] = deque()
        self._next_token = itertools.count(1).__next__

    # --- peers --------------------------------------------------------------------------------

    def add_peer(self, shard: int, fd: int) -> None:
        """Add or replace the link to another worker. The core owns the socket."""
        self.handle_all()  # upcalls about the old link
        if shard in self._peers:
            self._remove_peer(shard)
        self._core.add_peer(shard, fd)
        self._peers[shard] = PeerRequests(
            self._core, shard, lambda frame: self._send(shard, frame), self._has_capacity
        )
        for session in self._reserves:
            self._core.send_watches(session, shard)
        for session in list(self._reserves):
            self._with_reserve(session, lambda r: r.on_up(shard))
        self.handle_all()

    def _remove_peer(self, shard: int) -> None:
        del self._peers[shard]
        self._core.lose_peer(shard)
        for session in list(self._reserves):
            self._with_reserve(session, lambda r: r.on_down(shard))
        for session, lookup in list(self._lookups.items()):
            if lookup.shard == shard:
                self._ask_next(session, lookup)
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
            if self._later:
                self._later.popleft()()
            elif not self._core.resume_peers():
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
            case UpcallKind.CLAIM_ENDED:
                self._claim_ended(shard, session, int(upcall.token), Outcome(upcall.how))
            case UpcallKind.CLAIMS_DECIDED:
                self._claims_decided(shard, session)
            case UpcallKind.RESERVE:
                self._reserve(session, list(core.upcall_bytes(upcall)), int(upcall.until))
            case UpcallKind.SESSION_CLOSED if shard == self.home:
                self._forget(session)
            case UpcallKind.SESSION_CLOSED:
                if shard in self._peers:
                    self._peers[shard].proxy_closed(session)
            case UpcallKind.FIND_JOB:
                lookup = JobLookup(core.upcall_bytes(upcall), sorted(self._peers))
                self._lookups[session] = lookup
                self._ask_next(session, lookup)
            case UpcallKind.LIST_TUBES:
                self._list_tubes(session)
            case UpcallKind.MIGRATE:
                self._prepare_migration(session, shard, set(core.upcall_bytes(upcall)))
            case unknown:
                raise ValueError(f"the core sent an upcall of unknown kind {unknown}")

    def _forget(self, session: int) -> None:
        self._reserves.pop(session, None)
        self._deferred.pop(session, None)
        self._lookups.pop(session, None)
        self._migrations.pop(session, None)
        self._listings.pop(session, None)

    # --- frames -------------------------------------------------------------------------------

    def _send(self, shard: int, frame: Frame) -> None:
        self._core.send(shard, self._pack(frame))

    def _send_for(self, session: int, shard: int, kind: Kind, *rest: Any) -> None:
        self._core.send(shard, self._pack([kind, session, *rest]), session=session)

    def _handle_frame(self, shard: int, frame: Frame, fd: int | None) -> None:
        match frame:
            case [Kind.HEAD_IS, session, token, *rest]:
                head = Head(*rest)
                if not head.holds:
                    self._core.holds_nothing(session, shard)
                self._with_reserve(session, lambda r: r.on_head(shard, token, head))
            case [Kind.LOST, session, token]:
                self._with_reserve(session, lambda r: r.on_lost(shard, token))
            case [Kind.CANCELLED, session, token, stopped]:
                self._with_reserve(session, lambda r: r.on_cancelled(shard, token, stopped))
            case [Kind.HOLDS_IS, session, held, has_capacity]:
                self._holds(session, shard, held, has_capacity)
            case [Kind.TUBES_ARE, session, tubes]:
                self._tubes(session, shard, tubes)
            case [Kind.MOVE, *rest] if fd is not None:
                self._core.attach(Migration(fd, *rest))
            case [Kind.MOVE, *_]:
                LOGGER.error("closed a moved connection: too many open files; raise ulimit -n")
                self._core.migration_lost(shard)
            case _:
                self._peers[shard].handle(frame)

    def _output(self, shard: int, session: int, data: bytes) -> None:
        lookup = self._lookups.get(session)
        if lookup is None:
            return  # the connection is closed
        reply = lookup.on_output(data)
        if reply is not None:
            del self._lookups[session]
            self._core.expect(session, shard, 1)
            self._core.relay_output(session, shard, reply)
        elif lookup.not_found:
            self._ask_next(session, lookup)

    def _ask_next(self, session: int, lookup: JobLookup) -> None:
        shard = lookup.next_shard()
        while shard is not None and shard not in self._peers:
            shard = lookup.next_shard()
        if shard is not None:
            self._core.feed_proxy(shard, session, lookup.line)
            return
        del self._lookups[session]
        complete = len(self._peers) == self._workers - 1
        self._core.answer(session, NOT_FOUND if complete else INTERNAL_ERROR)

    # --- reserve ------------------------------------------------------------------------------

    def _reserve(self, session: int, shards: list[int], until: int) -> None:
        reserve = MultiShardReserve(self, session, shards, until, _now_mono, self._next_token)
        self._reserves[session] = reserve
        reserve.start()
        self._drop_if_done(session, reserve)

    def expire_slow_requests(self) -> None:
        """Apply SLOW_NS to reserves and listings. The loop calls this periodically."""
        since_mono = _now_mono() - SLOW_NS
        slow = [
            session
            for session, reserve in self._reserves.items()
            if reserve.phase is Phase.HEADS and reserve.heads_requested_mono < since_mono
        ]
        for session in slow:
            self._with_reserve(session, lambda r: r.on_slow())
        unanswered = [
            session
            for session, listing in self._listings.items()
            if listing.started_mono < since_mono
        ]
        for session in unanswered:
            self._fail_listing(session)
        if slow or unanswered:
            self.handle_all()

    def _with_reserve(self, session: int, event: Callable[[MultiShardReserve], None]) -> None:
        reserve = self._reserves.get(session)
        if reserve is not None:
            event(reserve)
            self._drop_if_done(session, reserve)

    def _drop_if_done(self, session: int, reserve: MultiShardReserve) -> None:
        if reserve.done and self._reserves.get(session) is reserve:
            del self._reserves[session]

    def _claim_ended(self, shard: int, session: int, token: int, outcome: Outcome) -> None:
        if outcome is Outcome.ANSWERED:
            self._with_reserve(session, lambda r: r.on_done())
        else:
            self._with_reserve(session, lambda r: r.on_waited(shard, token, outcome))

    def _head_here(self, session: int, token: int, decided: bool) -> None:
        head = self._core.head(session, decided)
        if head is None:
            self._deferred[session] = lambda: self._head_here(session, token, decided=True)
        else:
            self._reserve_later(session, lambda r: r.on_head(self.home, token, head))

    def _claim_here(self, session: int, token: int, pri: int, decided: bool) -> None:
        claimed = self._core.claim(session, pri, decided)
        if claimed is None:
            self._deferred[session] = lambda: self._claim_here(session, token, pri, decided=True)
        else:
            self._claim_decided(self.home, session, token, claimed)

    def _claims_decided(self, shard: int, session: int) -> None:
        if shard != self.home:
            if shard in self._peers:
                self._peers[shard].claims_decided(session)
            return
        retry = self._deferred.pop(session, None)
        if retry is not None:
            retry()

    # These implement Shards. Responses of this shard come later, like those of other shards.

    def is_up(self, shard: int) -> bool:
        return shard == self.home or shard in self._peers

    def head(self, shard: int, session: int, token: int) -> None:
        if shard != self.home:
            self._send_for(session, shard, Kind.HEAD, token)
        else:
            self._head_here(session, token, decided=False)

    def claim(self, shard: int, session: int, token: int, pri: int) -> None:
        if shard != self.home:
            self._core.expect(session, shard, 1)
            self._send_for(session, shard, Kind.CLAIM, token, pri)
        else:
            self._claim_here(session, token, pri, decided=False)

    def wait(self, shard: int, session: int, token: int, until: int) -> None:
        if shard != self.home:
            self._send_for(session, shard, Kind.WAIT, token)
        else:
            self._core.claim_wait(session, token, until)

    def take(self, shard: int, session: int, token: int) -> None:
        if shard != self.home:
            self._core.expect(session, shard, 1)
            self._send_for(session, shard, Kind.TAKE, token)
        else:
            self._claim_decided(shard, session, token, self._core.claim_take(session, token))

    def cancel(self, shard: int, session: int, token: int) -> None:
        if shard != self.home:
            self._send_for(session, shard, Kind.CANCEL, token)
        else:
            self._core.claim_cancel(session, token)

    def reserve(self, shard: int, session: int, token: int, poll: bool) -> None:
        self._core.expect(session, shard, 1)
        self._send_for(session, shard, Kind.RESERVE, token, poll)

    def answer(self, session: int, reply: bytes) -> None:
        self._core.answer(session, reply)

    def withdraw(self, session: int) -> None:
        self._core.expect(session, self.home, 0)

    def _claim_decided(self, shard: int, session: int, token: int, answered: bool) -> None:
        if answered:
            self._reserve_later(session, lambda r: r.on_done())
        else:
            self._reserve_later(session, lambda r: r.on_lost(shard, token))

    def _reserve_later(self, session: int, event: Callable[[MultiShardReserve], None]) -> None:
        # By then the session may have started another reserve.
        reserve = self._reserves.get(session)

        def run() -> None:
            if self._reserves.get(session) is reserve:
                self._with_reserve(session, event)

        self._later.append(run)

    # --- migration ----------------------------------------------------------------------------

    def _prepare_migration(self, session: int, shard: int, may_hold: set[int]) -> None:
        awaited = may_hold | {shard}
        if awaited - self._peers.keys():
            self._core.cancel_migration(session)
            return
        self._migrations[session] = PendingMigration(shard, awaited)
        for other in awaited:
            self._send_for(session, other, Kind.HOLDS)

    def _holds(self, session: int, shard: int, held: int, has_capacity: bool) -> None:
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
            self._send(shard, [Kind.TUBES, session])
        self._answer_listing(session, listing)

    def _tubes(self, session: int, shard: int, tubes: list[tuple[int, bytes]]) -> None:
        listing = self._listings.get(session)
        if listing is not None and shard in listing.awaited:
            listing.awaited.discard(shard)
            listing.tubes.extend((number, name) for number, name in tubes)
            self._answer_listing(session, listing)

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
