"""A model of shards, homes and channels for multi-shard reserves; the caller picks each event.

`events` lists the possible next events - a message arrives, a job is put, time is up, a worker
dies - and `do` executes one of them. So a test can try any order, and all orders. A shard
implements csrc/workers/claims.c with lists; a home implements reserve_requests.c. The reserves are
those of csrc/shards/multi_shard_reserve.c.

The invariants are asserted here after every event.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from core.workers.claims.world_keys import key_of
from core.workers.reserve_library import Head, Reserve

from beanstalkd_py.core.clocks import NEVER

TIMED_OUT = b"TIMED_OUT\r\n"
DEADLINE_SOON = b"DEADLINE_SOON\r\n"
INTERNAL_ERROR = b"INTERNAL_ERROR\r\n"
WORST_PRIORITY = 2**32 - 1
WAITED_JOB, WAITED_TIMED_OUT, WAITED_DEADLINE_SOON = 1, 2, 3

POLL = 0
"""`until` of a reserve-with-timeout 0: its time is up from the start."""
LATER = 10
"""`until` of a reserve with a timeout: its time is up after the event `time`."""

T = TypeVar("T")
CONTAINERS = frozenset({list, dict, set})

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
    published: bool = True
    """Shards publish their heads."""


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
        self.waiters: list[tuple[int, int]] = []  # the last claim it waits for, and a client
        self.deferred: dict[int, Frame] = {}  # the request of such a client
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
        self.reserve = Reserve()
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
        self.published = plan.published
        self.time = 1
        self.last_job = 0
        self.up = [[True for _ in every] for _ in every]  # up[home][shard], as home knows
        self.broken: set[tuple[int, int]] = set()  # (home, shard) without a socket
        self.channels: dict[tuple[int, int], list[Frame]] = {
            (a, b): [] for a in every for b in every if a != b
        }
        # Replies for clients of other homes leave at the end of a round, or when they are on disk:
        # later than frames about them.
        self.outgoing: list[list[Frame]] = [[] for _ in every]
        self.upcalls: list[list[Frame]] = [[] for _ in every]  # events of a home's own shard

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
            if not client.gone and not client.asking and client.plan:
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
        self._observe()
        if not self.deliveries():
            self.check_rest()

    def _observe(self) -> None:
        """Note for each client which shards have been without a job since it asked."""
        undecided = [
            {claim.number for claim in shard.claimed.values() if claim.job} for shard in self.shards
        ]
        for client in self.clients:
            if not client.asking:
                continue
            up = self.up[client.home]
            for n, shard in enumerate(self.shards):
                if not shard.ready or not up[n]:
                    client.seen_empty.add(n)
            client.pending_claims = {
                n: left
                for n, numbers in client.pending_claims.items()
                if up[n] and (left := numbers & undecided[n])
            }

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
            assert not shard.waiters, f"shard {n} does not answer {shard.deferred}"
        for n, client in enumerate(self.clients):
            waits_at = {s for s in range(len(self.shards)) if self._waits(s, n)}
            if not client.asking:
                assert not waits_at, f"client {n} waits at {waits_at} and has its reply"
                continue
            reserve = client.reserve
            assert reserve.phase in ("WAITING", "REMOTE"), f"client {n} never gets a reply"
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
        return key_of(self)

    def copy(self) -> World:
        """Return an equal world."""
        new = _copy_of(self)
        new.shards = [_copy_of(shard) for shard in self.shards]
        new.clients = [_copy_of(client) for client in self.clients]
        for client in new.clients:
            client.reserve = client.reserve.copy()
        new.channels = {pair: list(frames) for pair, frames in self.channels.items()}
        for name in ("up", "outgoing", "upcalls"):
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
        self.upcalls[client.home].append(("asks", n, client.serial))

    def _begin(self, n: int) -> None:
        client = self.clients[n]
        client.known = client.serial
        client.polls = client.until <= self.time
        concerned = client.watched | client.held
        client.reserve.start(self.session(n), client.home, concerned, client.until)

    def session(self, n: int) -> Session:
        return Session(self, n)

    def replied(self, n: int, reply: Any) -> None:
        """The client reads a reply."""
        client = self.clients[n]
        assert client.asking, f"client {n} gets {reply!r} and has asked for nothing"
        client.asking = False
        if reply == TIMED_OUT:
            assert client.until <= self.time, "too early"
            assert client.seen_empty >= client.watched, "TIMED_OUT with a job all the time"
            open_claims = client.polls and not client.watched.isdisjoint(client.pending_claims)
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
        client.gone, client.asking, client.expected = True, False, None

    # --- time, jobs ---

    def _do_time(self) -> None:
        self.time = LATER

    def _do_timer(self, n: int) -> None:
        home = self.clients[n].home
        token = self._stop_waiting(home, n)
        self._send_waited(home, n, token, WAITED_TIMED_OUT)

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
                    self._send_waited(n, client, token, WAITED_DEADLINE_SOON)
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
        self.outgoing[n], self.upcalls[n] = [], []
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
        while self.upcalls[home]:  # UpcallHandler.add_peer
            self._do_upcall(home)
            self._observe()
        self.broken.discard((home, n))
        if self.channels[n, home]:
            self.channels[n, home] = []
            self._lose(home, n)
        self.up[home][n] = True
        for c, client in enumerate(self.clients):
            if client.home == home and not client.gone:
                client.reserve.on_up(self.session(c), n)

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
            client.reserve.on_down(self.session(c), n)

    # --- messages ---

    def _send(self, here: int, there: int, frame: Frame) -> None:
        """From a home to a shard or back; lost without a socket."""
        if (here, there) not in self.broken and (there, here) not in self.broken:
            self.channels[here, there].append(frame)

    def _do_channel(self, here: int, there: int) -> None:
        kind, *rest = self.channels[here, there].pop(0)
        if kind == "ended":
            self.upcalls[there].append(("ended", None, here))
        elif kind == "close":
            self._close(there, *rest)
        elif kind in ("head", "claim", "wait", "take", "cancel", "reserve"):
            self._take(here, there, kind, *rest)
        else:
            self._arrives(here, kind, *rest)

    def _take(self, home: int, n: int, kind: str, client: int, *rest: Any) -> None:
        """A frame of another home."""
        match kind, *rest:
            case "head", token:
                self.send_head(n, client, token)
            case "claim", _, _:
                self.claim(n, client, *rest)
            case "wait", token:
                self.wait(n, client, token, NEVER)
            case "take", token:
                if not self.take(n, client, token):
                    self._send(n, home, ("lost", client, token))
            case "cancel", token, confirm:
                deferred = self.shards[n].deferred.pop(client, None) is not None
                stopped = self.cancel(n, client, token) or deferred
                if confirm:
                    self._send(n, home, ("cancelled", client, token, stopped))
            case "reserve", token, poll:
                self._reserve_alone(n, client, token, poll)

    def _arrives(self, n: int, kind: str, client: int, *rest: Any) -> None:
        """A frame of a shard at the client's home."""
        asking = self.clients[client]
        if asking.gone:
            return
        if kind == "output":
            assert asking.expected == n, f"client {client} gets {rest} and has not asked shard {n}"
            asking.expected = None
            self.replied(client, *rest)
            if self._waits(asking.home, client):
                self._stop_waiting(asking.home, client)
            asking.reserve.on_done()
            return
        reserve, session = asking.reserve, self.session(client)
        match kind, *rest:
            case "head_is", token, head:
                if token == reserve.token:
                    asking.heads[n] = head
                reserve.on_head(session, n, token, head)
            case "lost", token:
                reserve.on_lost(session, token)
            case "waited", token, outcome:
                reserve.on_waited(session, n, token, outcome)
            case "cancelled", token, stopped:
                reserve.on_cancelled(session, token, stopped)

    def _do_outgoing(self, n: int) -> None:
        _, client, _ = frame = self.outgoing[n].pop(0)
        self._send(n, self.clients[client].home, frame)

    def _do_upcall(self, home: int) -> None:
        self._happens(home, self.upcalls[home].pop(0))

    def _happens(self, home: int, frame: Frame) -> None:
        kind, client, *rest = frame
        if kind == "decided":
            self._ask_again(home, client)
        elif kind == "ended":
            self._lose(home, *rest)
        elif kind == "asks":
            if self.clients[client].serial == rest[0] and not self.clients[client].gone:
                self._begin(client)
        else:
            self._arrives(home, kind, client, *rest)

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

    def _defer(self, n: int, client: int, *request: Any) -> None:
        shard = self.shards[n]
        shard.waiters.append((shard.claims, client))
        shard.deferred[client] = request

    def _ask_again(self, n: int, client: int) -> None:
        """Execute the request that waited for pending claims."""
        request = self.shards[n].deferred.pop(client, None)
        if request is None:
            return
        kind, token, *rest = request
        if kind == "claim":
            self.claim(n, client, token, *rest, decided=True)
        elif kind == "whole":
            self._reserve_alone(n, client, token, *rest, decided=True)
        elif self.clients[client].home == n:
            head = self.head(n, client, token, decided=True)
            self._arrives(n, "head_is", client, token, head)
        else:
            self.send_head(n, client, token, decided=True)

    def head(self, n: int, client: int, token: int, decided: bool = False) -> Head | None:
        """Return the head of this shard for that client; None: the request is deferred."""
        if not decided and self._is_pending(n, client):
            self._defer(n, client, "head", token)
            return None
        pri, id_ = self._best(n, client) or (0, 0)
        holds = list(self.shards[n].reserved.values()).count(client)
        return Head(id_, pri, holds, client in self.shards[n].soon)

    def send_head(self, n: int, client: int, token: int, decided: bool = False) -> None:
        head = self.head(n, client, token, decided)
        if head is not None:
            self._send(n, self.clients[client].home, ("head_is", client, token, head))

    def published_head(self, n: int, client: int) -> Head | None:
        """Return what a home reads in shared memory; None: the shard has to be asked."""
        if not self.published or self._is_pending(n, client):
            return None
        pri, id_ = self._best(n, client) or (0, 0)
        return Head(id_, pri)

    def claim(self, n: int, client: int, token: int, pri: int, decided: bool = False) -> None:
        """Hand out the best job if its priority is not lower."""
        home = self.clients[client].home
        if not decided and self._is_pending(n, client):
            self._defer(n, client, "claim", token, pri)
            return
        best = self._best(n, client)
        if best is not None and best[0] <= pri:
            self._give(n, client)
        elif home == n:
            self.clients[client].reserve.on_lost(self.session(client), token)
        else:
            self._send(n, home, ("lost", client, token))

    def wait(self, n: int, client: int, token: int, until: int) -> None:
        """Claims a job now or later."""
        shard = self.shards[n]
        assert not self._waits(n, client), "it waits already"
        assert client not in shard.claimed, "it has claimed one already"
        if self._best(n, client) is not None:
            self._claim(n, client, token)
        elif client in shard.soon:
            self._send_waited(n, client, token, WAITED_DEADLINE_SOON)
        elif until <= self.time:
            self._send_waited(n, client, token, WAITED_TIMED_OUT)
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
        job = self._decided_job(n, client, token)
        if job is not None:
            self._make_ready(n, job)
        else:
            self._serve(n)
        return job is not None

    def _claim(self, n: int, client: int, token: int) -> None:
        shard = self.shards[n]
        shard.claims += 1
        shard.claimed[client] = Claim(token, shard.claims, shard.ready.pop(0))
        self._send_waited(n, client, token, WAITED_JOB)

    def _decided_job(self, n: int, client: int, token: int) -> Order | None:
        """The job of a claim that is over now."""
        shard = self.shards[n]
        if client not in shard.claimed or shard.claimed[client].token != token:
            return None
        job = shard.claimed.pop(client).job
        oldest = min((c.number for c in shard.claimed.values()), default=shard.claims + 1)
        while shard.waiters and shard.waiters[0][0] < oldest:
            self.upcalls[n].append(("decided", shard.waiters.pop(0)[1]))
        return job

    def _reserve_alone(
        self, n: int, client: int, token: int, poll: bool, decided: bool = False
    ) -> None:
        shard = self.shards[n]
        now_or_never = poll or self._best(n, client) is not None
        if now_or_never and not decided and self._is_pending(n, client):
            self._defer(n, client, "whole", token, poll)
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
            self.clients[client].reserve.on_done()
            self.replied(client, reply)
        else:
            self.outgoing[n].append(("output", client, reply))

    def _send_waited(self, n: int, client: int, token: int, outcome: int) -> None:
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
        shard.waiters = [(last, waiter) for last, waiter in shard.waiters if waiter != client]
        shard.deferred.pop(client, None)
        if client in shard.claimed:
            self.cancel(n, client, shard.claimed[client].token)
        shard.soon.discard(client)
        self.outgoing[n] = [frame for frame in self.outgoing[n] if frame[1] != client]
        for job in [job for job, holder in shard.reserved.items() if holder == client]:
            del shard.reserved[job]
            self._make_ready(n, job)


class Session:
    """Requests of the reserves of one client."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.client = world.clients[number]
        self.home = self.client.home

    def now(self) -> int:
        return self.world.time

    def is_up(self, shard: int) -> bool:
        return self.world.up[self.home][shard]

    def _send(self, shard: int, kind: str, *rest: Any) -> None:
        self.client.spoken.add(shard)
        self.world._send(self.home, shard, (kind, self.number, *rest))

    def head(self, shard: int, token: int, exact: bool) -> Head | None:
        self.client.heads.pop(shard, None)
        found = None
        if shard == self.home:
            found = self.world.head(shard, self.number, token)
        elif not exact or shard not in self.client.held:
            found = self.world.published_head(shard, self.number)
        if found is not None:
            self.client.heads[shard] = found
        elif shard != self.home:
            self._send(shard, "head", token)
        return found

    def claim(self, shard: int, token: int, pri: int) -> None:
        known = {n: (h.pri, h.id) for n, h in self.client.heads.items() if h.id}
        assert known[shard] == min(known.values()), "there is a better one"
        others = [best[0] for n, best in known.items() if n != shard]
        strict = self.client.reserve.is_strict
        assert pri == (min(others) if others and strict else WORST_PRIORITY)
        if shard != self.home:
            self._expect(shard)
            self._send(shard, "claim", token, pri)
        else:
            self.world.claim(shard, self.number, token, pri)

    def wait(self, shard: int, token: int, until: int) -> None:
        if shard != self.home:
            self._send(shard, "wait", token)
        else:
            self.world.wait(shard, self.number, token, until)

    def take(self, shard: int, token: int) -> None:
        if shard != self.home:
            self._expect(shard)
            self._send(shard, "take", token)
        elif not self.world.take(shard, self.number, token):
            self.client.reserve.on_lost(self, token)

    def cancel(self, shard: int, token: int, confirm: bool) -> None:
        if shard != self.home:
            self._send(shard, "cancel", token, confirm)
        else:
            self.world.cancel(shard, self.number, token)

    def whole(self, shard: int, token: int, poll: bool) -> None:
        self._expect(shard)
        self._send(shard, "reserve", token, poll)

    def reply(self, reply: bytes) -> None:
        client = self.client
        assert client.known == client.serial, f"{reply!r} is for what it had asked before"
        assert client.expected is None, f"{reply!r}, and shard {client.expected} answers too"
        assert not self.world._waits(self.home, self.number), f"{reply!r}, and home goes on waiting"
        self.world.replied(self.number, reply)

    def withdraw(self) -> None:
        assert self.client.known == self.client.serial, "what it asks now is withdrawn"
        self.client.expected = None

    def _expect(self, shard: int) -> None:
        assert self.client.known == self.client.serial, "it has asked for something else since"
        assert self.client.expected is None, "two shards are to answer"
        self.client.expected = shard


def _copy_of(thing: T) -> T:
    """Copy the containers; their elements do not change."""
    new: T = object.__new__(type(thing))
    new.__dict__ = {
        name: value.copy() if type(value) in CONTAINERS else value
        for name, value in vars(thing).items()
    }
    return new
