"""The home of connections: brings what the core wants of other workers to them, and answers back.

Takes the core's mails, keeps what is under way for each session - a reserve over several shards, a
search, a move, a listing - and knows which shards have a proxy for it. Must not know how messages
travel (mesh.py) or what a shard does with a frame (proxies.py).
"""

from __future__ import annotations

import itertools
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from beanstalkd_py.core.core import Core, Head, Luggage, MailKind, Outcome, PeerState, read_clocks
from beanstalkd_py.server.claims import INTERNAL_ERROR, Reserve
from beanstalkd_py.server.frames import Frame, Kind, pieces
from beanstalkd_py.server.logs import LOGGER
from beanstalkd_py.server.mesh import Peer, PeerGoneError
from beanstalkd_py.server.probes import NOT_FOUND, Probe
from beanstalkd_py.server.proxies import Proxies

READABLE = 1
WRITABLE = 2


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


class Router:
    """One worker among others. Implements claims.Shards for the reserves of its connections.

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
        self._peers: dict[int, Peer] = {}
        self._proxies: dict[int, Proxies] = {}
        self._shards_of: dict[int, set[int]] = {}
        self._reserves: dict[int, Reserve] = {}
        self._probes: dict[int, Probe] = {}
        self._moves: dict[int, Move] = {}
        self._listings: dict[int, Listing] = {}
        self._later: deque[Callable[[], None]] = deque()
        self._next_token = itertools.count(1).__next__

    # --- other workers come and go --------------------------------------------------------------

    def add_peer(self, shard: int, sock: socket.socket) -> None:
        """A socket to another worker, in place of the one there was."""
        self.collect()  # what was meant for the old one must not reach the new one
        if shard in self._peers:
            self._lose_peer(shard)
        peer = self._peers[shard] = Peer(shard, sock)
        self._proxies[shard] = Proxies(self._core, shard, peer.add, self._has_room)
        self._core.watch_peer(shard, peer.fileno(), False)
        self._core.peer(shard, PeerState.UP)
        for session in self._reserves:
            self._core.tell_watches(session, shard)
        self.collect()
        for session in list(self._reserves):
            self._with_reserve(session, lambda r: r.on_up(shard))
        self.collect()

    def _lose_peer(self, shard: int) -> None:
        self._peers.pop(shard).close()
        self._proxies.pop(shard).close()
        for known in self._shards_of.values():
            known.discard(shard)
        self._core.peer(shard, PeerState.DOWN)
        for session in list(self._reserves):
            self._with_reserve(session, lambda r: r.on_down(shard))
        for session, probe in list(self._probes.items()):
            if probe.asked == shard:
                self._ask_next(session, probe)
        for session, move in list(self._moves.items()):
            if shard in move.asked or shard == move.shard:
                self._stay(session)
        for session, listing in list(self._listings.items()):
            listing.asked.discard(shard)
            self._answer_listing(session, listing)

    def close(self) -> None:
        """Closes the sockets to the others, which tells them."""
        for peer in self._peers.values():
            peer.close()

    # --- the core's mails -----------------------------------------------------------------------

    def collect(self) -> None:
        """Takes all mails and sends what came of them."""
        while True:
            while (mail := self._core.next_mail()) is not None:
                self._handle(mail)
            if not self._later:
                break
            self._later.popleft()()
        for peer in list(self._peers.values()):
            self._flush(peer)

    def _handle(self, mail: Any) -> None:
        core, session, shard = self._core, int(mail.session), int(mail.shard)
        match mail.kind:
            case MailKind.FEED:
                self._feed(session, shard, core.mail_bytes(mail))
            case MailKind.OUTPUT:
                if shard in self._proxies:
                    self._proxies[shard].says(session, core.mail_bytes(mail))
            case MailKind.PEER:
                self._peer_ready(shard, int(mail.how))
            case MailKind.COUNT:
                counts = int(mail.users), int(mail.watchers), int(mail.id)
                self._send(shard, [Kind.COUNT, core.mail_bytes(mail), *counts])
            case MailKind.CLAIM:
                self._claim_ended(shard, session, int(mail.token), Outcome(mail.how))
            case MailKind.RESERVE:
                self._reserve(session, list(core.mail_bytes(mail)), int(mail.until))
            case MailKind.CLOSED if mail.how:
                if shard in self._proxies:
                    self._proxies[shard].ended(session)
            case MailKind.CLOSED:
                self._forget(session)
            case MailKind.ANYWHERE:
                probe = Probe(core.mail_bytes(mail), sorted(self._peers))
                self._probes[session] = probe
                self._ask_next(session, probe)
            case MailKind.TUBES:
                self._list_tubes(session)
            case MailKind.MOVE:
                self._prepare_move(session, shard, set(core.mail_bytes(mail)))
            case unknown:
                raise ValueError(f"the core sent mail of unknown kind {unknown}")

    def _feed(self, session: int, shard: int, data: bytes) -> None:
        for piece in pieces(data):
            self._send_for(session, shard, Kind.FEED, piece)

    def _forget(self, session: int) -> None:
        self._reserves.pop(session, None)
        self._probes.pop(session, None)
        self._moves.pop(session, None)
        self._listings.pop(session, None)
        for shard in self._shards_of.pop(session, ()):
            self._send(shard, [Kind.CLOSE, session])

    # --- frames ---------------------------------------------------------------------------------

    def _send(self, shard: int, frame: Frame) -> None:
        peer = self._peers.get(shard)
        if peer is not None:
            peer.add(frame)

    def _send_for(self, session: int, shard: int, kind: Kind, *rest: Any) -> None:
        if shard in self._peers:
            self._shards_of.setdefault(session, set()).add(shard)
            self._peers[shard].add([kind, session, *rest])

    def _flush(self, peer: Peer) -> None:
        was_busy = peer.busy
        try:
            left = peer.flush()
        except PeerGoneError:
            return  # its end will be read
        if left != peer.wants_out:
            peer.wants_out = left
            self._core.watch_peer(peer.shard, peer.fileno(), left)
        if peer.busy != was_busy:
            self._core.peer(peer.shard, PeerState.BUSY if peer.busy else PeerState.UP)

    def _peer_ready(self, shard: int, how: int) -> None:
        peer = self._peers.get(shard)
        if peer is None or not how & READABLE:
            return  # `collect` flushes in any case
        try:
            for frame, fd in peer.receive():
                self._take(shard, frame, fd)
        except PeerGoneError:
            if self._peers.get(shard) is peer:
                LOGGER.info("worker %d has gone; its tubes have to wait", shard)
                self._lose_peer(shard)

    def _take(self, shard: int, frame: Frame, fd: int | None) -> None:
        match frame:
            case [Kind.OUTPUT, session, data]:
                self._output(shard, session, data)
            case [Kind.HEAD_IS, session, token, *head]:
                self._with_reserve(session, lambda r: r.on_head(shard, token, Head(*head)))
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
            case [Kind.ENDED, session]:
                self._core.end(session)
            case [Kind.MOVE, producer, worker, eof, state] if fd is not None:
                self._core.attach(Luggage(fd, producer, worker, eof, state))
            case [Kind.MOVE, *_]:
                LOGGER.error("a connection was lost: this process has no descriptors left")
            case _:
                self._proxies[shard].take(frame)

    def _output(self, shard: int, session: int, data: bytes) -> None:
        probe = self._probes.get(session)
        if probe is None:
            self._core.deliver(session, shard, data)
            return
        answer = probe.on_output(data)
        if answer is not None:
            del self._probes[session]
            self._core.expect(session, shard, 1)
            self._core.deliver(session, shard, answer)
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
        reserve = Reserve(self, session, shards, until, _now_mono, self._next_token)
        self._reserves[session] = reserve
        reserve.start()
        self._drop_if_done(session, reserve)

    def _with_reserve(self, session: int, event: Callable[[Reserve], None]) -> None:
        reserve = self._reserves.get(session)
        if reserve is not None:
            event(reserve)
            self._drop_if_done(session, reserve)

    def _drop_if_done(self, session: int, reserve: Reserve) -> None:
        if reserve.done and self._reserves.get(session) is reserve:
            del self._reserves[session]

    def _claim_ended(self, shard: int, session: int, token: int, outcome: Outcome) -> None:
        if shard != self.home:
            if shard in self._proxies:
                self._proxies[shard].waited(session, token, outcome)
        elif outcome is Outcome.ANSWERED:
            self._with_reserve(session, lambda r: r.on_done())
        else:
            self._with_reserve(session, lambda r: r.on_waited(shard, token, outcome))

    # These are claims.Shards. What this shard answers is told later, as if it were another one.

    def is_up(self, shard: int) -> bool:
        """Whether the shard can be asked."""
        return shard == self.home or shard in self._peers

    def head(self, shard: int, session: int, token: int) -> None:
        """claims.Shards."""
        if shard != self.home:
            self._send_for(session, shard, Kind.HEAD, token)
            return
        head = self._core.head(session)
        self._reserve_later(session, lambda r: r.on_head(shard, token, head))

    def claim(self, shard: int, session: int, token: int, pri: int, job: int) -> None:
        """claims.Shards."""
        if shard != self.home:
            self._core.expect(session, shard, 1)
            self._send_for(session, shard, Kind.CLAIM, token, pri, job)
        else:
            self._decided(shard, session, token, self._core.claim(session, pri, job))

    def wait(self, shard: int, session: int, token: int, until: int) -> None:
        """claims.Shards."""
        if shard != self.home:
            self._send_for(session, shard, Kind.WAIT, token)
        else:
            self._core.claim_wait(session, token, until)

    def take(self, shard: int, session: int, token: int) -> None:
        """claims.Shards."""
        if shard != self.home:
            self._core.expect(session, shard, 1)
            self._send_for(session, shard, Kind.TAKE, token)
        else:
            self._decided(shard, session, token, self._core.claim_take(session, token))

    def cancel(self, shard: int, session: int, token: int) -> None:
        """claims.Shards."""
        if shard != self.home:
            self._send_for(session, shard, Kind.CANCEL, token)
        else:
            self._core.claim_cancel(session, token)

    def reserve(self, shard: int, session: int, token: int, poll: bool) -> None:
        """claims.Shards."""
        self._core.expect(session, shard, 1)
        self._send_for(session, shard, Kind.RESERVE, token, poll)

    def answer(self, session: int, reply: bytes) -> None:
        """claims.Shards."""
        self._core.answer(session, reply)

    def withdraw(self, session: int) -> None:
        """claims.Shards."""
        self._core.expect(session, self.home, 0)

    def _decided(self, shard: int, session: int, token: int, answered: bool) -> None:
        if answered:
            self._reserve_later(session, lambda r: r.on_done())
        else:
            self._reserve_later(session, lambda r: r.on_lost(shard, token))

    def _reserve_later(self, session: int, event: Callable[[Reserve], None]) -> None:
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
            self._core.stay(session)
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
        luggage = self._core.detach(session)
        if luggage is not None:
            frame = [Kind.MOVE, luggage.producer, luggage.worker, luggage.eof, luggage.state]
            self._peers[shard].add_with_descriptor(frame, luggage.fd)

    def _stay(self, session: int) -> None:
        del self._moves[session]
        self._core.stay(session)

    # --- list-tubes -----------------------------------------------------------------------------

    def _list_tubes(self, session: int) -> None:
        listing = Listing(set(self._peers), self._core.tubes())
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

    def _answer_listing(self, session: int, listing: Listing) -> None:
        if listing.asked:
            return
        del self._listings[session]
        names = b"".join(b"- %b\n" % name for _, name in sorted(listing.tubes))
        self._core.answer(session, b"OK %d\r\n---\n%b\r\n" % (len(names) + 4, names))


def _now_mono() -> int:
    return read_clocks().mono
