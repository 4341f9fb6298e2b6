"""A model of shards, homes and channels for MultiShardReserve; the caller picks each event.

`events` lists the possible next events - a message arrives, a job is put, time is up, a worker
dies - and `do` executes one of them. So a test can try any order, and all orders. A shard
implements csrc/workers/claims.c with lists; a home implements upcalls.py.

The invariants are asserted here after every event.
"""

from __future__ import annotations

import copy
from bisect import bisect_right, insort
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from beanstalkd_py.core.clocks import NEVER
from beanstalkd_py.core.coordination import Head, Outcome
from beanstalkd_py.server.worker.multi_shard_reserve import (
    DEADLINE_SOON,
    INTERNAL_ERROR,
    STRICT_TRIES,
    TIMED_OUT,
    WORST_PRIORITY,
    MultiShardReserve,
    Phase,
)

POLL = 0
"""`until` of a reserve-with-timeout 0: its time is up from the start."""
LATER = 10
"""`until` of a reserve with a timeout: its time is up after the event `time`."""

PYTHONS = ("ended", "head_is", "lost", "waited", "cancelled")
"""Upcalls to a home worker, in order. The client gets its reply without one
(csrc/runtime/worker_links.h)."""

Event = tuple[Any, ...]
Frame = tuple[Any, ...]
Order = tuple[int, int]  # priority and id of a job


@dataclass
class Plan:
    """A scenario: the clients, each with its home, watched shards and reserves; puts; failures.

    A put is (shard, priority). A mishap may happen that often: `leave` - a client goes; `down` -
    a worker dies; `expire` - a job's time to run is over; `soon` - it will be within a second.
    """

    shards: int
    clients: list[tuple[int, frozenset[int], list[int]]]
    puts: list[Order]
    mishaps: dict[str, int] = field(default_factory=dict)
    mortal: frozenset[int] = frozenset()
    prompt: bool = False
    """Python reads at once if nothing else is to be read: fewer orders."""


class Claim(NamedTuple):
    """`job` is None once its time to run is over."""

    token: int
    number: int
    job: Order | None


class Shard:
    """The jobs of one worker, and the clients that wait for them."""

    def __init__(self) -> None:
        self.ready: list[Order] = []
        self.reserved: dict[Order, int] = {}  # by client
        self.claimed: dict[int, Claim] = {}  # by client; it may not take the job
        self.claims = 0
        self.questions: list[tuple[int, Frame]] = []  # the last claim it waits for, and a question
        self.waiting: list[tuple[int, int, str]] = []  # client, token, "claim" or "reserve"
        self.soon: set[int] = set()


class Client:
    """One connection, which reserves again and again."""

    def __init__(self, home: int, watched: frozenset[int], plan: list[int]) -> None:
        self.home = home
        self.watched = watched
        self.plan = list(plan)
        self.until = 0
        self.polls = False  # its time was over when its reserve began
        self.held: set[int] = set()  # shards
        self.spoken: set[int] = set()
        self.expected: int | None = None  # the shard that is to reply
        self.reserve: MultiShardReserve | None = None
        self.known = 0  # the serial of that one; the client may be one further
        self.serial = 0
        self.asking = False
        self.gone = False
        self.heads: dict[int, Head] = {}
        self.seen_empty: set[int] = set()
        self.pending_claims: dict[int, set[int]] = {}  # claims when it began to ask, not decided
        self.was_soon = False


class World:
    """See the module. Everything is numbers and lists, so that it can be copied and compared."""

    def __init__(self, plan: Plan) -> None:
        every = range(plan.shards)
        self.shards = [Shard() for _ in every]
        self.clients = [Client(*client) for client in plan.clients]
        self.puts = list(plan.puts)
        self.mishaps = dict(plan.mishaps)
        self.mortal = plan.mortal
        self.prompt = plan.prompt
        self.time = 1
        self.last_job = 0
        self.tokens = [0 for _ in every]
        self.up = [[True for _ in every] for _ in every]  # up[home][shard], as home knows
        self.broken: set[tuple[int, int]] = set()  # (home, shard) without a socket
        self.channels: dict[tuple[int, int], list[Frame]] = {
            (a, b): [] for a in every for b in every if a != b
        }
        # Replies for clients of other homes leave at the end of a round, or when they are on disk:
        # later than frames about them.
        self.outgoing: list[list[Frame]] = [[] for _ in every]
        self.upcalls: list[list[Frame]] = [[] for _ in every]
        self.later: list[list[Frame]] = [[] for _ in every]
        self.homes = [Home(self, home) for home in every]

    # --- what can happen ---

    def deliveries(self) -> list[Event]:
        """Return the events of messages under way."""
        events: list[Event] = [
            ("channel", *pair) for pair, frames in self.channels.items() if frames
        ]
        for home in range(len(self.shards)):
            if self.outgoing[home]:
                events.append(("outgoing", home))
            if self.upcalls[home]:
                events.append(("upcall", home))
            elif self.later[home]:  # the router takes all upcalls first
                events.append(("later", home))
        events += [
            ("timer", n)
            for n, client in enumerate(self.clients)
            if client.until <= self.time and self._waits(client.home, n)
        ]
        return events

    def events(self) -> list[Event]:
        """Return all events that can happen now."""
        events = self.deliveries()
        events += [("up", home, shard) for home, shard in sorted(self.broken)]
        if self.puts:
            events.append(("put",))
        if self.time < LATER and any(c.asking and c.until == LATER for c in self.clients):
            events.append(("time",))
        for n, client in enumerate(self.clients):
            # A client with a reply from another shard continues at once, before Python's upcalls.
            has_reply = any(f[1] == n for f in self.later[client.home])
            if not client.gone and not client.asking and client.plan and not has_reply:
                events.append(("start", n))
        for mishap, left in self.mishaps.items():
            if left:
                events += getattr(self, f"_{mishap}s")()
        return events

    def do(self, event: Event) -> None:
        """Execute an event."""
        kind, *arguments = event
        if kind in self.mishaps:
            self.mishaps[kind] -= 1
        getattr(self, f"_do_{kind}")(*arguments)
        for client in self.clients:
            for n, shard in enumerate(self.shards):
                if not shard.ready or not self.up[client.home][n]:
                    client.seen_empty.add(n)
                undecided = {claim.number for claim in shard.claimed.values() if claim.job}
                up = self.up[client.home][n]
                client.pending_claims[n] = (
                    client.pending_claims.get(n, set()) & undecided if up else set()
                )
        if not self.deliveries():
            self.check_rest()

    def settle(self) -> None:
        """Deliver every message, and execute all planned reserves and puts."""
        while True:
            events = [e for e in self.events() if e[0] not in self.mishaps and e[0] != "time"]
            if not events:
                return
            self.do(events[0])

    # --- what must hold ---

    def check_rest(self) -> None:
        """Nothing is under way."""
        for n, shard in enumerate(self.shards):
            assert not shard.claimed, f"shard {n} keeps {shard.claimed} for no client"
            assert not shard.questions, f"shard {n} does not answer {shard.questions}"
        for n, client in enumerate(self.clients):
            waits_at = {s for s in range(len(self.shards)) if self._waits(s, n)}
            if not client.asking:
                assert not waits_at, f"client {n} waits at {waits_at} and has its reply"
                continue
            reserve = client.reserve
            assert reserve is not None and not reserve.done, f"client {n} never gets a reply"
            assert reserve.phase in (Phase.WAITING, Phase.REMOTE), "it hangs"
            assert client.home in waits_at, "no worker keeps its time"
            up = {s for s in client.watched if self.up[client.home][s]}
            assert waits_at >= up - {client.home}
            for s in up:
                assert not self.shards[s].ready, f"client {n} waits, and shard {s} has a job"

    def jobs(self) -> int:
        """Return the number of jobs in all states."""
        return sum(
            len(shard.ready) + len(shard.reserved) + sum(1 for c in shard.claimed.values() if c.job)
            for shard in self.shards
        )

    def key(self) -> Hashable:
        """Return a key that is equal for worlds with the same future."""
        return (
            tuple(
                (
                    tuple(s.ready),
                    frozenset(s.reserved.items()),
                    *_renumbered(s),
                    tuple(s.waiting),
                    frozenset(s.soon),
                )
                for s in self.shards
            ),
            tuple(
                (
                    tuple(c.plan),
                    frozenset(c.held),
                    c.expected,
                    c.asking,
                    c.gone,
                    frozenset(c.seen_empty),
                    frozenset(n for n, open_claims in c.pending_claims.items() if open_claims),
                    c.was_soon,
                    c.known == c.serial,
                    _key_of(c.reserve) if c.reserve is not None and not c.reserve.done else None,
                )
                for c in self.clients
            ),
            tuple(self.puts),
            tuple(self.mishaps.values()),
            self.time,
            tuple(map(tuple, self.up)),
            frozenset(self.broken),
            tuple(map(tuple, self.channels.values())),
            tuple(map(tuple, self.outgoing)),
            tuple(map(tuple, self.upcalls)),
            tuple(map(tuple, self.later)),
        )

    def copy(self) -> World:
        """Return an equal world."""
        new = copy.copy(self)
        new.homes = [Home(new, home.home) for home in self.homes]
        new.shards = [_copy_of(shard) for shard in self.shards]
        new.clients = [_copy_of(client) for client in self.clients]
        for client in new.clients:
            if client.reserve is not None:
                home = new.homes[client.home]
                client.reserve = _copy_of(client.reserve)
                vars(client.reserve).update(
                    _shards=home, _now_mono=home.now_mono, _next_token=home.next_token
                )
        for name in ("puts", "mishaps", "tokens", "broken"):
            setattr(new, name, copy.copy(getattr(self, name)))
        new.channels = {pair: list(frames) for pair, frames in self.channels.items()}
        for name in ("up", "outgoing", "upcalls", "later"):
            setattr(new, name, [list(row) for row in getattr(self, name)])
        return new

    # --- clients ---

    def _do_start(self, n: int) -> None:
        client = self.clients[n]
        client.asking = True
        client.until = client.plan.pop(0)
        client.serial += 1
        client.seen_empty, client.heads = set(), {}
        client.pending_claims = {
            n: {claim.number for claim in shard.claimed.values() if claim.job}
            for n, shard in enumerate(self.shards)
        }
        client.was_soon = any(n in shard.soon for shard in self.shards)
        if self.upcalls[client.home]:
            self.upcalls[client.home].append(("reserve", n, client.serial))
        else:
            self._begin(n)

    def _begin(self, n: int) -> None:
        client = self.clients[n]
        home = self.homes[client.home]
        concerned = sorted(client.watched | client.held)
        client.known = client.serial
        client.polls = client.until <= self.time
        client.reserve = MultiShardReserve(
            home, n, concerned, client.until, home.now_mono, home.next_token
        )
        client.reserve.start()

    def replied(self, n: int, reply: Any) -> None:
        """The client reads a reply."""
        client = self.clients[n]
        assert client.asking, f"client {n} gets {reply!r} and has asked for nothing"
        client.asking = False
        if reply == TIMED_OUT:
            assert client.until <= self.time, "too early"
            assert client.seen_empty >= client.watched, "TIMED_OUT with a job all the time"
            open_claims = client.polls and any(client.pending_claims[n] for n in client.watched)
            assert not open_claims, "TIMED_OUT before it was certain"
        elif reply == DEADLINE_SOON:
            assert client.was_soon
        elif reply == INTERNAL_ERROR:
            assert client.polls and len(client.watched) == 1, "it could have waited"
        else:
            client.held.add(reply)

    def _leaves(self) -> list[Event]:
        return [("leave", n) for n, client in enumerate(self.clients) if not client.gone]

    def _do_leave(self, n: int) -> None:
        client = self.clients[n]
        self._vanish(n)
        self._close(client.home, n)
        for shard in client.spoken:
            self._send(client.home, shard, ("close", n))

    def _vanish(self, n: int) -> None:
        client = self.clients[n]
        client.gone, client.asking, client.reserve, client.expected = True, False, None, None

    # --- time, jobs ---

    def _do_time(self) -> None:
        self.time = LATER

    def _do_timer(self, n: int) -> None:
        home = self.clients[n].home
        token = self._stop_waiting(home, n)
        self._send_waited(home, n, token, Outcome.TIMED_OUT)

    def _do_put(self) -> None:
        shard, pri = self.puts.pop(0)
        self.last_job += 1
        self._make_ready(shard, (pri, self.last_job))

    def _expires(self) -> list[Event]:
        return [
            ("expire", n, job)
            for n, shard in enumerate(self.shards)
            for job in [*shard.reserved, *(claim.job for claim in shard.claimed.values())]
            if job
        ]

    def _do_expire(self, n: int, job: Order) -> None:
        shard = self.shards[n]
        if job in shard.reserved:
            shard.soon.discard(shard.reserved.pop(job))
        else:
            (client,) = (c for c, claim in shard.claimed.items() if claim.job == job)
            shard.claimed[client] = shard.claimed[client]._replace(job=None)
        self._make_ready(n, job)

    def _soons(self) -> list[Event]:
        return [
            ("soon", n, client)
            for n, shard in enumerate(self.shards)
            for client in sorted(set(shard.reserved.values()) - shard.soon)
        ]

    def _do_soon(self, n: int, client: int) -> None:
        self.shards[n].soon.add(client)
        self.clients[client].was_soon = True
        for c, token, kind in list(self.shards[n].waiting):
            if c == client:
                self._stop_waiting(n, client)
                if kind == "claim":
                    self._send_waited(n, client, token, Outcome.DEADLINE_SOON)
                else:
                    self._reply(n, client, DEADLINE_SOON)

    # --- workers ---

    def _downs(self) -> list[Event]:
        """Kill a worker, with or without its last messages."""
        return [("down", shard, kept) for shard in sorted(self.mortal) for kept in (True, False)]

    def _do_down(self, n: int, kept: bool) -> None:
        """Replace a worker at once by a new one with all its jobs, and no sockets yet."""
        old, new = self.shards[n], Shard()
        claimed = [claim.job for claim in old.claimed.values() if claim.job]
        new.ready = sorted([*old.ready, *old.reserved, *claimed])
        self.shards[n] = new
        self.outgoing[n], self.upcalls[n], self.later[n] = [], [], []
        for c, client in enumerate(self.clients):
            if client.home == n:
                self._vanish(c)
        for other in range(len(self.shards)):
            if other == n or (other, n) in self.broken:
                continue
            self.channels[other, n] = []
            if not kept:
                self.channels[n, other] = []
            self.channels[n, other].append(("ended",))
            self.broken.add((other, n))

    def _do_up(self, home: int, n: int) -> None:
        """Connect the new worker, before or after the end of the old one was noticed."""
        while self.upcalls[home] or self.later[home]:  # UpcallHandler.add_peer
            self._do_upcall(home) if self.upcalls[home] else self._do_later(home)
        self.broken.discard((home, n))
        if self.channels[n, home]:
            self.channels[n, home] = []
            self._lose(home, n)
        self.up[home][n] = True
        for client in self.clients:
            if client.home == home and client.asking and client.reserve is not None:
                client.reserve.on_up(n)

    def _lose(self, home: int, n: int) -> None:
        self.up[home][n] = False
        for c, client in enumerate(self.clients):
            if client.home == n:
                self._close(home, c)  # its proxies here
            if client.home != home or client.gone:
                continue
            client.held.discard(n)
            client.spoken.discard(n)
            client.seen_empty.add(n)
            client.heads.pop(n, None)
            if client.expected == n:
                client.expected = None
            if client.asking and client.reserve is not None:
                client.reserve.on_down(n)

    # --- messages ---

    def _send(self, here: int, there: int, frame: Frame) -> None:
        """From a home to a shard or back; lost without a socket."""
        if (here, there) not in self.broken and (there, here) not in self.broken:
            self.channels[here, there].append(frame)

    def _do_channel(self, here: int, there: int) -> None:
        kind, *rest = self.channels[here, there].pop(0)
        if kind in PYTHONS:
            frame = ("from", rest[0] if rest else None, here, kind, *rest[1:])
            if self.prompt and not self.upcalls[there]:
                self._happens(there, frame)
            else:
                self.upcalls[there].append(frame)
        elif kind == "close":
            self._close(there, *rest)
        elif kind in ("head", "claim", "wait", "take", "cancel", "reserve"):
            self._take(here, there, kind, *rest)
        else:
            self._arrives(here, kind, *rest)

    def _take(self, home: int, n: int, kind: str, client: int, *rest: Any) -> None:
        """A frame of another home; proxies.py."""
        match kind, *rest:
            case "head", _:
                self.head(n, client, *rest)
            case "claim", _, _:
                self.claim(n, client, *rest)
            case "wait", token:
                self.wait(n, client, token, NEVER)
            case "take", token:
                if not self.take(n, client, token):
                    self._send(n, home, ("lost", client, token))
            case "cancel", token:
                stopped = self.cancel(n, client, token)
                self._send(n, home, ("cancelled", client, token, stopped))
            case "reserve", token, poll:
                self._reserve_alone(n, client, token, poll)

    def _arrives(self, n: int, kind: str, client: int, *rest: Any) -> None:
        """A frame of a shard at the client's home; upcalls.py."""
        asking = self.clients[client]
        if asking.gone:
            return
        if kind == "output":
            assert asking.expected == n, f"client {client} gets {rest} and has not asked shard {n}"
            asking.expected = None
            self.replied(client, *rest)
            if self._waits(asking.home, client):
                self._stop_waiting(asking.home, client)
            self.upcalls[asking.home].append(("done", client, asking.serial))
            return
        reserve = asking.reserve
        if reserve is None or reserve.done:
            return
        match kind, *rest:
            case "head_is", token, head:
                asking.heads[n] = head
                reserve.on_head(n, token, head)
            case "lost", token:
                reserve.on_lost(n, token)
            case "waited", token, outcome:
                reserve.on_waited(n, token, outcome)
            case "cancelled", token, stopped:
                reserve.on_cancelled(n, token, stopped)

    def _do_outgoing(self, n: int) -> None:
        _, client, _ = frame = self.outgoing[n].pop(0)
        self._send(n, self.clients[client].home, frame)

    def _do_upcall(self, home: int) -> None:
        self._happens(home, self.upcalls[home].pop(0))

    def _do_later(self, home: int) -> None:
        self._happens(home, self.later[home].pop(0))

    def _happens(self, home: int, frame: Frame) -> None:
        kind, client, *rest = frame
        if kind == "certain":
            self._ask_again(home, client, *rest)
        elif kind == "from" and rest[1] == "ended":
            self._lose(home, rest[0])
        elif kind == "from":
            self._arrives(*rest[:2], client, *rest[2:])
        elif kind == "reserve":
            if self.clients[client].serial == rest[0] and not self.clients[client].gone:
                self._begin(client)
        elif kind != "done":
            self._arrives(home, kind, client, *rest)
        elif self.clients[client].known == rest[0] and not self.clients[client].gone:
            reserve = self.clients[client].reserve
            assert reserve is not None
            reserve.on_done()

    # --- a shard's part: claims.c ---

    def _waits(self, n: int, client: int) -> bool:
        return any(c == client for c, _, _ in self.shards[n].waiting)

    def _stop_waiting(self, n: int, client: int) -> int:
        (entry,) = (entry for entry in self.shards[n].waiting if entry[0] == client)
        self.shards[n].waiting.remove(entry)
        return entry[1]

    def _best(self, n: int, client: int) -> Order | None:
        ready = self.shards[n].ready
        return ready[0] if ready and n in self.clients[client].watched else None

    def _is_pending(self, n: int, client: int) -> bool:
        return n in self.clients[client].watched and bool(self.shards[n].claimed)

    def _ask_again(self, n: int, client: int, kind: str, *rest: Any) -> None:
        if kind == "head":
            self.head(n, client, *rest, certain=True)
        elif kind == "claim":
            self.claim(n, client, *rest, certain=True)
        else:
            self._reserve_alone(n, client, *rest, certain=True)

    def head(self, n: int, client: int, token: int, certain: bool = False) -> None:
        """Return the head of this shard for that client."""
        shard, home = self.shards[n], self.clients[client].home
        if not certain and self._is_pending(n, client):
            shard.questions.append((shard.claims, ("certain", client, "head", token)))
            return
        best = self._best(n, client)
        head = Head(best is not None, best is not None, client in shard.soon, *(best or (0, 0)))
        frame = ("head_is", client, token, head)
        if home == n:
            self.later[n].append(frame)
        else:
            self._send(n, home, frame)

    def claim(self, n: int, client: int, token: int, pri: int, certain: bool = False) -> None:
        """Hand out the best job if its priority is not lower."""
        shard, home = self.shards[n], self.clients[client].home
        if not certain and self._is_pending(n, client):
            shard.questions.append((shard.claims, ("certain", client, "claim", token, pri)))
            return
        best = self._best(n, client)
        given = best is not None and best[0] <= pri
        if given:
            self._give(n, client)
        if home == n:
            self.homes[n]._decided(client, token, given)
        elif not given:
            self._send(n, home, ("lost", client, token))

    def wait(self, n: int, client: int, token: int, until: int) -> None:
        """Claims a job now or later."""
        shard = self.shards[n]
        assert not self._waits(n, client), "it waits already"
        assert client not in shard.claimed, "it has claimed one already"
        if self._best(n, client) is not None:
            self._claim(n, client, token)
        elif client in shard.soon:
            self._send_waited(n, client, token, Outcome.DEADLINE_SOON)
        elif until <= self.time:
            self._send_waited(n, client, token, Outcome.TIMED_OUT)
        else:
            shard.waiting.append((client, token, "claim"))

    def take(self, n: int, client: int, token: int) -> bool:
        """Hand out the claimed job."""
        job = self._decided_job(n, client, token)
        if job is None:
            self._serve(n)
            return False
        self.shards[n].reserved[job] = client
        self._reply(n, client, n)
        self._serve(n)
        return True

    def cancel(self, n: int, client: int, token: int) -> bool:
        """Stop waiting, or put back the claimed job."""
        shard = self.shards[n]
        if (client, token, "claim") in shard.waiting or any(
            (c, kind) == (client, "reserve") for c, _, kind in shard.waiting
        ):
            self._stop_waiting(n, client)
            return True
        asked = len(shard.questions)
        shard.questions = [
            (last, frame) for last, frame in shard.questions if frame[1:3] != (client, "reserve")
        ]
        job = self._decided_job(n, client, token)
        if job is not None:
            self._make_ready(n, job)
        else:
            self._serve(n)
        return job is not None or len(shard.questions) < asked

    def _claim(self, n: int, client: int, token: int) -> None:
        shard = self.shards[n]
        shard.claims += 1
        shard.claimed[client] = Claim(token, shard.claims, shard.ready.pop(0))
        self._send_waited(n, client, token, Outcome.JOB)

    def _decided_job(self, n: int, client: int, token: int) -> Order | None:
        """The job of a claim that is over now."""
        shard = self.shards[n]
        if client not in shard.claimed or shard.claimed[client].token != token:
            return None
        job = shard.claimed.pop(client).job
        oldest = min((c.number for c in shard.claimed.values()), default=shard.claims + 1)
        while shard.questions and shard.questions[0][0] < oldest:
            self.upcalls[n].append(shard.questions.pop(0)[1])
        return job

    def _reserve_alone(
        self, n: int, client: int, token: int, poll: bool, certain: bool = False
    ) -> None:
        shard = self.shards[n]
        now_or_never = poll or self._best(n, client) is not None
        if now_or_never and not certain and self._is_pending(n, client):
            shard.questions.append((shard.claims, ("certain", client, "reserve", token, poll)))
        elif self._best(n, client) is not None:
            self._give(n, client)
        elif client in shard.soon:
            self._reply(n, client, DEADLINE_SOON)
        elif poll:
            self._reply(n, client, TIMED_OUT)
        else:
            assert not self._waits(n, client), "it waits already"
            shard.waiting.append((client, token, "reserve"))

    def _make_ready(self, n: int, job: Order) -> None:
        insort(self.shards[n].ready, job)
        self._serve(n)

    def _serve(self, n: int) -> None:
        for client, token, kind in list(self.shards[n].waiting):
            if self._best(n, client) is None or self.shards[n].claimed:
                continue
            self._stop_waiting(n, client)
            if kind == "claim":
                self._claim(n, client, token)
            else:
                self._give(n, client)

    def _give(self, n: int, client: int) -> None:
        shard = self.shards[n]
        shard.reserved[shard.ready.pop(0)] = client
        self._reply(n, client, n)

    def _reply(self, n: int, client: int, reply: Any) -> None:
        """RESERVED is the number of its shard, because the home learns no more from it."""
        home = self.clients[client].home
        if home == n:
            self.replied(client, reply)
        else:
            self.outgoing[n].append(("output", client, reply))

    def _send_waited(self, n: int, client: int, token: int, outcome: Outcome) -> None:
        home = self.clients[client].home
        frame = ("waited", client, token, outcome)
        if home == n:
            self.upcalls[home].append(frame)
        else:
            self._send(n, home, frame)

    def _close(self, n: int, client: int) -> None:
        """The session of this client ends here."""
        shard = self.shards[n]
        if self._waits(n, client):
            self._stop_waiting(n, client)
        shard.questions = [(last, frame) for last, frame in shard.questions if frame[1] != client]
        # Later decisions about it are ignored.
        self.upcalls[n] = [f for f in self.upcalls[n] if f[:2] != ("certain", client)]
        if client in shard.claimed:
            self.cancel(n, client, shard.claimed[client].token)
        shard.soon.discard(client)
        self.outgoing[n] = [frame for frame in self.outgoing[n] if frame[1] != client]
        for job in [job for job, holder in shard.reserved.items() if holder == client]:
            del shard.reserved[job]
            self._make_ready(n, job)


class Home:
    """The shards for the connections of one worker; messages to itself are delayed, too."""

    def __init__(self, world: World, home: int) -> None:
        self.world = world
        self.home = home

    def now_mono(self) -> int:
        return self.world.time

    def next_token(self) -> int:
        self.world.tokens[self.home] += 1
        return self.world.tokens[self.home]

    def is_up(self, shard: int) -> bool:
        return self.world.up[self.home][shard]

    def _send(self, shard: int, kind: str, session: int, *rest: Any) -> None:
        client = self.world.clients[session]
        client.spoken.add(shard)
        self.world._send(self.home, shard, (kind, session, *rest))

    def head(self, shard: int, session: int, token: int) -> None:
        self.world.clients[session].heads.pop(shard, None)
        if shard != self.home:
            self._send(shard, "head", session, token)
        else:
            self.world.head(shard, session, token)

    def claim(self, shard: int, session: int, token: int, pri: int) -> None:
        client = self.world.clients[session]
        known = {n: (h.pri, h.id) for n, h in client.heads.items() if h.ready}
        assert known[shard] == min(known.values()), "there is a better one"
        reserve = client.reserve
        assert reserve is not None
        others = [best[0] for n, best in known.items() if n != shard]
        choosy = reserve._tries <= STRICT_TRIES
        assert pri == (min(others) if others and choosy else WORST_PRIORITY)
        if shard != self.home:
            self._expect(session, shard)
            self._send(shard, "claim", session, token, pri)
        else:
            self.world.claim(shard, session, token, pri)

    def wait(self, shard: int, session: int, token: int, until: int) -> None:
        if shard != self.home:
            self._send(shard, "wait", session, token)
        else:
            self.world.wait(shard, session, token, until)

    def take(self, shard: int, session: int, token: int) -> None:
        if shard != self.home:
            self._expect(session, shard)
            self._send(shard, "take", session, token)
        else:
            self._decided(session, token, self.world.take(shard, session, token))

    def cancel(self, shard: int, session: int, token: int) -> None:
        if shard != self.home:
            self._send(shard, "cancel", session, token)
        else:
            self.world.cancel(shard, session, token)

    def reserve(self, shard: int, session: int, token: int, poll: bool) -> None:
        self._expect(session, shard)
        self._send(shard, "reserve", session, token, poll)

    def answer(self, session: int, reply: bytes) -> None:
        client = self.world.clients[session]
        if not client.asking:
            return  # as bs_core_answer: it has its reply, and `done` is on its way
        assert client.known == client.serial, f"{reply!r} is for what it had asked before"
        assert client.expected is None, f"{reply!r}, and shard {client.expected} answers too"
        assert not self.world._waits(self.home, session), f"{reply!r}, and home goes on waiting"
        self.world.replied(session, reply)

    def withdraw(self, session: int) -> None:
        client = self.world.clients[session]
        assert client.known == client.serial, "what it asks now is withdrawn"
        client.expected = None

    def _expect(self, session: int, shard: int) -> None:
        client = self.world.clients[session]
        assert client.known == client.serial, "it has asked for something else since"
        assert client.expected is None, "two shards are to answer"
        client.expected = shard

    def _decided(self, session: int, token: int, answered: bool) -> None:
        serial = self.world.clients[session].serial
        frame = ("done", session, serial) if answered else ("lost", session, token)
        self.world.later[self.home].append(frame)


def _copy_of(thing: Any) -> Any:
    """Copy the containers; their elements do not change."""
    new = copy.copy(thing)
    for name, value in vars(thing).items():
        if isinstance(value, (list, dict, set)):
            setattr(new, name, value.copy())
    return new


def _renumbered(shard: Shard) -> tuple[Hashable, ...]:
    """Return its claims and their waiters, independent of numbers."""
    numbers = sorted(claim.number for claim in shard.claimed.values())
    claims = sorted((c.number, client, c.token, c.job) for client, c in shard.claimed.items())
    return (
        tuple(claim[1:] for claim in claims),
        tuple((bisect_right(numbers, last), frame) for last, frame in shard.questions),
    )


def _key_of(reserve: MultiShardReserve | None) -> Hashable:
    known = vars(reserve)
    return (
        reserve.phase if reserve else None,
        known["_token"],
        known["_asked"],
        known["_tries"],
        frozenset(known["_pending"]),
        frozenset(known["_heads"].items()),
    )
