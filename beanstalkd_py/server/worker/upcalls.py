"""The home of connections: brings what the core wants of other workers to them, and answers back.

Takes the core's upcalls, and keeps what is under way for each session: a reserve over several
shards, a search, a move, a listing. What happens per command is not among that: the core does it.
Must not know how messages travel (csrc/runtime/worker_links.h) or what a shard does with a frame
(proxies.py).
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
from beanstalkd_py.server.worker.job_lookup import NOT_FOUND, Probe
from beanstalkd_py.server.worker.multi_shard_reserve import INTERNAL_ERROR, MultiShardReserve, Phase
from beanstalkd_py.server.worker.peer_requests import PeerRequests

SLOW_NS = 1_000_000_000
"""A shard that has not said by then what it has is left out of a reserve, and fails a list-tubes.

Who would not wait is told that there is nothing, so it is long enough for a slow disk.
"""


@dataclass(slots=True)
class Move:
    """A connection that is to move to `shard` once those asked have said that it holds nothing."""

    shard: int
    asked: set[int]


@dataclass(slots=True)
class Listing:
    """A list-tubes that waits for other shards. `tubes` are (number, name)."""

    asked: set[int]
    tubes: list[tuple[int, bytes]]
    asked_mono: int


class UpcallHandler:
    """One worker among others. Implements Shards for the reserves of its connections.

    `has_room` says whether this worker can take on one more connection.
    """

    def __init__(
        self,
        core: Core,
        shard: int,
        workers: int,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        self.home = shard
        self._has_room = has_room
        self._core = core
        self._workers = workers
        self._pack = msgpack.Packer().pack
        self._peers: dict[int, PeerRequests] = {}
        self._reserves: dict[int, MultiShardReserve] = {}
        self._probes: dict[int, Probe] = {}
        self._undecided: dict[int, Callable[[], None]] = {}
        self._moves: dict[int, Move] = {}
        self._listings: dict[int, Listing] = {}
        self._later: deque[Callable[[], None]] = deque()
        self._next_token = itertools.count(1).__next__

    # --- other workers come and go --------------------------------------------------------------

    def add_peer(self, shard: int, fd: int) -> None:
        """A socket to another worker, in place of the one there was. It is the core's."""
        self.collect()  # what came of the old one, and what was meant for it
        if shard in self._peers:
            self._lose_peer(shard)
        self._core.add_peer(shard, fd)
        self._peers[shard] = PeerRequests(
            self._core, shard, lambda f: self._send(shard, f), self._has_room
        )
        for session in self._reserves:
            self._core.send_watches(session, shard)
        for session in list(self._reserves):
            self._with_reserve(session, lambda r: r.on_up(shard))
        self.collect()

    def _lose_peer(self, shard: int) -> None:
        del self._peers[shard]
        self._core.lose_peer(shard)
        for session in list(self._reserves):
            self._with_reserve(session, lambda r: r.on_down(shard))
        for session, probe in list(self._probes.items()):
            if probe.asked == shard:
                self._ask_next(session, probe)
        for session, move in list(self._moves.items()):
            if shard in move.asked or shard == move.shard:
                self._stay(session)
        for session, listing in list(self._listings.items()):
            if shard in listing.asked:
                self._fail_listing(session)

    # --- the core's upcalls -----------------------------------------------------------------------

    def collect(self) -> None:
        """Takes all upcalls and sends what came of them."""
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
                self._take(
                    shard, msgpack.unpackb(core.upcall_bytes(upcall)), fd if fd >= 0 else None
                )
            case UpcallKind.PEER_CLOSED:
                LOGGER.info("worker %d has gone; its tubes have to wait", shard)
                self._lose_peer(shard)
            case UpcallKind.PROTOCOL_ERROR:
                raise ValueError(f"worker {shard} sent what is no frame")
            case UpcallKind.CLAIM_ENDED:
                self._claim_ended(session, int(upcall.token), Outcome(upcall.how))
            case UpcallKind.CLAIMS_DECIDED:
                self._claims_decided(shard, session)
            case UpcallKind.RESERVE:
                self._reserve(session, list(core.upcall_bytes(upcall)), int(upcall.until))
            case UpcallKind.SESSION_CLOSED if shard == self.home:
                self._forget(session)
            case UpcallKind.SESSION_CLOSED:
                if shard in self._peers:
                    self._peers[shard].ended(session)
            case UpcallKind.FIND_JOB:
                probe = Probe(core.upcall_bytes(upcall), sorted(self._peers))
                self._probes[session] = probe
                self._ask_next(session, probe)
            case UpcallKind.LIST_TUBES:
                self._list_tubes(session)
            case UpcallKind.MIGRATE:
                self._prepare_move(session, shard, set(core.upcall_bytes(upcall)))
            case unknown:
                raise ValueError(f"the core sent an upcall of unknown kind {unknown}")

    def _forget(self, session: int) -> None:
        self._reserves.pop(session, None)
        self._undecided.pop(session, None)
        self._probes.pop(session, None)
        self._moves.pop(session, None)
        self._listings.pop(session, None)

    # --- frames ---------------------------------------------------------------------------------

    def _send(self, shard: int, frame: Frame) -> None:
        self._core.send(shard, self._pack(frame))

    def _send_for(self, session: int, shard: int, kind: Kind, *rest: Any) -> None:
        self._core.send(shard, self._pack([kind, session, *rest]), session=session)

    def _take(self, shard: int, frame: Frame, fd: int | None) -> None:
        match frame:
            case [Kind.OUTPUT, session, data]:
                self._output(shard, session, data)
            case [Kind.HEAD_IS, session, token, *rest]:
                head = Head(*rest)
                if not head.holds:
                    self._core.holds_nothing(session, shard)
                self._with_reserve(session, lambda r: r.on_head(shard, token, head))
            case [Kind.LOST, session, token]:
                self._with_reserve(session, lambda r: r.on_lost(shard, token))
            case [Kind.WAITED, session, token, outcome]:
                self._with_reserve(session, lambda r: r.on_waited(shard, token, Outcome(outcome)))
            case [Kind.CANCELLED, session, token, stopped]:
                self._with_reserve(session, lambda r: r.on_cancelled(shard, token, stopped))
            case [Kind.HOLDS_IS, session, held, room]:
                self._holds(session, shard, held, room)
            case [Kind.TUBES_ARE, session, tubes]:
                self._tubes(session, shard, tubes)
            case [Kind.MOVE, producer, worker, eof, state, trace] if fd is not None:
                self._core.attach(Migration(fd, producer, worker, eof, state, tuple(trace)))
            case [Kind.MOVE, *_]:
                LOGGER.error("a connection was lost: this process has no descriptors left")
                self._core.migration_lost(shard)
            case _:
                self._peers[shard].take(frame)

    def _output(self, shard: int, session: int, data: bytes) -> None:
        probe = self._probes.get(session)
        if probe is None:
            return  # the connection has ended meanwhile
        answer = probe.on_output(data)
        if answer is not None:
            del self._probes[session]
            self._core.expect(session, shard, 1)
            self._core.relay_output(session, shard, answer)
        elif probe.refused:
            self._ask_next(session, probe)

    # --- a job that could be anywhere -----------------------------------------------------------

    def _ask_next(self, session: int, probe: Probe) -> None:
        shard = probe.next_shard()
        while shard is not None and shard not in self._peers:
            shard = probe.next_shard()
        if shard is not None:
            self._send_for(session, shard, Kind.FEED, probe.line)
            return
        del self._probes[session]
        everyone = len(self._peers) == self._workers - 1
        self._core.answer(session, NOT_FOUND if everyone else INTERNAL_ERROR)

    # --- reserve --------------------------------------------------------------------------------

    def _reserve(self, session: int, shards: list[int], until: int) -> None:
        reserve = MultiShardReserve(self, session, shards, until, _now_mono, self._next_token)
        self._reserves[session] = reserve
        reserve.start()
        self._drop_if_done(session, reserve)

    def look_after_slow(self) -> None:
        """Reserves that have waited for long to hear what all shards have go on with what is known.

        Listings that have are refused. To be called every now and then.
        """
        since_mono = _now_mono() - SLOW_NS
        slow = [
            session
            for session, reserve in self._reserves.items()
            if reserve.phase is Phase.HEADS and reserve.asked_mono < since_mono
        ]
        for session in slow:
            self._with_reserve(session, lambda r: r.on_slow())
        unanswered = [
            session
            for session, listing in self._listings.items()
            if listing.asked_mono < since_mono
        ]
        for session in unanswered:
            self._fail_listing(session)
        if slow or unanswered:
            self.collect()

    def _with_reserve(self, session: int, event: Callable[[MultiShardReserve], None]) -> None:
        reserve = self._reserves.get(session)
        if reserve is not None:
            event(reserve)
            self._drop_if_done(session, reserve)

    def _drop_if_done(self, session: int, reserve: MultiShardReserve) -> None:
        if reserve.done and self._reserves.get(session) is reserve:
            del self._reserves[session]

    def _claim_ended(self, session: int, token: int, outcome: Outcome) -> None:
        if outcome is Outcome.ANSWERED:
            self._with_reserve(session, lambda r: r.on_done())
        else:
            self._with_reserve(session, lambda r: r.on_waited(self.home, token, outcome))

    # These are Shards. What this shard answers is told later, as if it were another one.

    def is_up(self, shard: int) -> bool:
        """Whether the shard can be asked."""
        return shard == self.home or shard in self._peers

    def head(self, shard: int, session: int, token: int) -> None:
        """Shards."""
        if shard != self.home:
            self._send_for(session, shard, Kind.HEAD, token)
            return
        self._head_here(session, token, decided=False)

    def _head_here(self, session: int, token: int, decided: bool) -> None:
        head = self._core.head(session, decided)
        if head is None:
            self._undecided[session] = lambda: self._head_here(session, token, decided=True)
        else:
            self._reserve_later(session, lambda r: r.on_head(self.home, token, head))

    def _claim_here(self, session: int, token: int, pri: int, decided: bool) -> None:
        claimed = self._core.claim(session, pri, decided)
        if claimed is None:
            self._undecided[session] = lambda: self._claim_here(session, token, pri, decided=True)
        else:
            self._decided(self.home, session, token, claimed)

    def _claims_decided(self, shard: int, session: int) -> None:
        if shard != self.home:
            if shard in self._peers:
                self._peers[shard].claims_decided(session)
            return
        ask_again = self._undecided.pop(session, None)
        if ask_again is not None:
            ask_again()

    def claim(self, shard: int, session: int, token: int, pri: int) -> None:
        """Shards."""
        if shard != self.home:
            self._core.expect(session, shard, 1)
            self._send_for(session, shard, Kind.CLAIM, token, pri)
        else:
            self._claim_here(session, token, pri, decided=False)

    def wait(self, shard: int, session: int, token: int, until: int) -> None:
        """Shards."""
        if shard != self.home:
            self._send_for(session, shard, Kind.WAIT, token)
        else:
            self._core.claim_wait(session, token, until)

    def take(self, shard: int, session: int, token: int) -> None:
        """Shards."""
        if shard != self.home:
            self._core.expect(session, shard, 1)
            self._send_for(session, shard, Kind.TAKE, token)
        else:
            self._decided(shard, session, token, self._core.claim_take(session, token))

    def cancel(self, shard: int, session: int, token: int) -> None:
        """Shards."""
        if shard != self.home:
            self._send_for(session, shard, Kind.CANCEL, token)
        else:
            self._core.claim_cancel(session, token)

    def reserve(self, shard: int, session: int, token: int, poll: bool) -> None:
        """Shards."""
        self._core.expect(session, shard, 1)
        self._send_for(session, shard, Kind.RESERVE, token, poll)

    def answer(self, session: int, reply: bytes) -> None:
        """Shards."""
        self._core.answer(session, reply)

    def withdraw(self, session: int) -> None:
        """Shards."""
        self._core.expect(session, self.home, 0)

    def _decided(self, shard: int, session: int, token: int, answered: bool) -> None:
        if answered:
            self._reserve_later(session, lambda r: r.on_done())
        else:
            self._reserve_later(session, lambda r: r.on_lost(shard, token))

    def _reserve_later(self, session: int, event: Callable[[MultiShardReserve], None]) -> None:
        # The session may have begun the next one by then.
        reserve = self._reserves.get(session)

        def tell() -> None:
            if self._reserves.get(session) is reserve:
                self._with_reserve(session, event)

        self._later.append(tell)

    # --- moving ---------------------------------------------------------------------------------

    def _prepare_move(self, session: int, shard: int, may_hold: set[int]) -> None:
        asked = may_hold | {shard}
        if asked - self._peers.keys():
            self._core.cancel_migration(session)
            return
        self._moves[session] = Move(shard, asked)
        for other in asked:
            self._send_for(session, other, Kind.HOLDS)

    def _holds(self, session: int, shard: int, held: int, room: bool) -> None:
        move = self._moves.get(session)
        if move is None:
            return
        move.asked.discard(shard)
        if held or (shard == move.shard and not room):
            self._stay(session)
        elif not move.asked:
            self._move(session, move.shard)

    def _move(self, session: int, shard: int) -> None:
        self._moves.pop(session, None)
        migration = self._core.detach(session, shard)
        if migration is not None:
            fd, *rest = migration
            self._core.send(shard, self._pack([Kind.MOVE, *rest]), fd=fd)

    def _stay(self, session: int) -> None:
        del self._moves[session]
        self._core.cancel_migration(session)

    # --- list-tubes -----------------------------------------------------------------------------

    def _list_tubes(self, session: int) -> None:
        if len(self._peers) < self._workers - 1:
            self._core.answer(session, INTERNAL_ERROR)  # as for each tube that would be missing
            return
        listing = Listing(set(self._peers), self._core.tubes(), _now_mono())
        self._listings[session] = listing
        for shard in listing.asked:
            self._send(shard, [Kind.TUBES, session])
        self._answer_listing(session, listing)

    def _tubes(self, session: int, shard: int, tubes: list[tuple[int, bytes]]) -> None:
        listing = self._listings.get(session)
        if listing is not None and shard in listing.asked:
            listing.asked.discard(shard)
            listing.tubes.extend((number, name) for number, name in tubes)
            self._answer_listing(session, listing)

    def _fail_listing(self, session: int) -> None:
        """Tubes would be missing. That is refused, as a command for a tube of that worker is."""
        del self._listings[session]
        self._core.answer(session, INTERNAL_ERROR)

    def _answer_listing(self, session: int, listing: Listing) -> None:
        if listing.asked:
            return
        del self._listings[session]
        names = b"".join(b"- %b\n" % name for _, name in sorted(listing.tubes))
        self._core.answer(session, b"OK %d\r\n---\n%b\r\n" % (len(names) + 4, names))


def _now_mono() -> int:
    return read_clocks().mono
