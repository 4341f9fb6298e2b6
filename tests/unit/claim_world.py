"""A world for claims.Reserve: shards, homes and channels, in which the caller picks what happens.

Nothing here happens by itself. `events` lists what could happen next - a message arrives, a job is
put, time is up, a worker dies - and `do` makes one of it happen. So any order can be tried, and all
of them can be. A shard does what csrc/claims.c does, in lists; a home does what router.py does.

What must hold after every event is asserted here, at the place where it would go wrong.
"""

from __future__ import annotations

import copy
from bisect import insort
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from beanstalkd_py.core.core import NEVER, Head, Outcome
from beanstalkd_py.server.claims import (
    DEADLINE_SOON,
    INTERNAL_ERROR,
    TIMED_OUT,
    Phase,
    Reserve,
)

POLL = 0
"""`until` of a reserve-with-timeout 0: its time is up from the start."""
LATER = 10
"""`until` of a reserve with a timeout: its time is up after the event `time`."""

Event = tuple[Any, ...]
Frame = tuple[Any, ...]
Order = tuple[int, int]  # priority and id of a job


@dataclass
class Plan:
    """What may happen: the clients, each with its home, watched shards and reserves; puts; mishaps.

    A put is (shard, priority). A mishap may happen that often: `leave` - a client goes; `down` -
    a worker dies; `expire` - a job's time to run is over; `soon` - it will be within a second.
    """

    shards: int
    clients: list[tuple[int, frozenset[int], list[int]]]
    puts: list[Order]
    mishaps: dict[str, int] = field(default_factory=dict)
    mortal: frozenset[int] = frozenset()


class Shard:
    """The jobs of one worker, and who waits for them."""

    def __init__(self) -> None:
        self.ready: list[Order] = []
        self.reserved: dict[Order, int] = {}  # by which client
        self.told: set[Order] = set()  # and the client knows
        self.claimed: dict[int, tuple[int, Order]] = {}  # client: token and job
        self.waiting: list[tuple[int, int, str]] = []  # client, token, "claim" or "reserve"
        self.soon: set[int] = set()


class Client:
    """One connection, which reserves again and again."""

    def __init__(self, home: int, watched: frozenset[int], plan: list[int]) -> None:
        self.home = home
        self.watched = watched
        self.plan = list(plan)
        self.until = 0
        self.polls = False  # its time was over when it asked
        self.held: set[int] = set()  # shards
        self.spoken: set[int] = set()
        self.expected: int | None = None  # the shard that is to reply
        self.reserve: Reserve | None = None
        self.serial = 0
        self.asking = False
        self.gone = False
        self.heads: dict[int, Head] = {}
        self.seen_empty: set[int] = set()
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
        self.time = 1
        self.last_job = 0
        self.tokens = [0 for _ in every]
        self.up = [[True for _ in every] for _ in every]  # up[home][shard], as home knows
        self.broken: set[tuple[int, int]] = set()  # (home, shard) without a socket
        self.channels: dict[tuple[int, int], list[Frame]] = {
            (a, b): [] for a in every for b in every if a != b
        }
        # What is said for clients elsewhere leaves at the end of a round, or when it is on disk:
        # later than what is said of them.
        self.said: list[list[Frame]] = [[] for _ in every]
        self.mails: list[list[Frame]] = [[] for _ in every]
        self.later: list[list[Frame]] = [[] for _ in every]
        self.homes = [Home(self, home) for home in every]

    # --- what can happen ---

    def deliveries(self) -> list[Event]:
        """What is under way already and will arrive."""
        events: list[Event] = [
            ("channel", *pair) for pair, frames in self.channels.items() if frames
        ]
        for home in range(len(self.shards)):
            if self.said[home]:
                events.append(("said", home))
            if self.mails[home]:
                events.append(("mail", home))
            elif self.later[home]:  # the router takes all mails first
                events.append(("later", home))
        events += [
            ("timer", n)
            for n, client in enumerate(self.clients)
            if client.until <= self.time and self._waits(client.home, n)
        ]
        return events

    def events(self) -> list[Event]:
        """All that can happen now."""
        events = self.deliveries()
        events += [("up", home, shard) for home, shard in sorted(self.broken)]
        if self.puts:
            events.append(("put",))
        if self.time < LATER and any(c.asking and c.until == LATER for c in self.clients):
            events.append(("time",))
        for n, client in enumerate(self.clients):
            # A session executes its next line when the mails about the last one have been read.
            told = any(f[1] == n for f in self.mails[client.home] + self.later[client.home])
            if not client.gone and not client.asking and client.plan and not told:
                events.append(("start", n))
        for mishap, left in self.mishaps.items():
            if left:
                events += getattr(self, f"_{mishap}s")()
        return events

    def do(self, event: Event) -> None:
        """Makes it happen."""
        kind, *arguments = event
        if kind in self.mishaps:
            self.mishaps[kind] -= 1
        getattr(self, f"_do_{kind}")(*arguments)
        for client in self.clients:
            client.seen_empty |= {
                n
                for n, shard in enumerate(self.shards)
                if not shard.ready or not self.up[client.home][n]
            }
        if not self.deliveries():
            self.check_rest()

    def settle(self) -> None:
        """Lets everything arrive, and all plans and puts be carried out."""
        while True:
            events = [e for e in self.events() if e[0] not in self.mishaps and e[0] != "time"]
            if not events:
                return
            self.do(events[0])

    # --- what must hold ---

    def check_rest(self) -> None:
        """Nothing is under way."""
        for n, shard in enumerate(self.shards):
            assert not shard.claimed, f"shard {n} keeps {shard.claimed} for nobody"
            assert set(shard.reserved) == shard.told, "a job is reserved and nobody knows"
        for n, client in enumerate(self.clients):
            waits_at = {s for s in range(len(self.shards)) if self._waits(s, n)}
            if not client.asking:
                assert not waits_at, f"client {n} waits at {waits_at} and has its reply"
                continue
            reserve = client.reserve
            assert reserve is not None and not reserve.done, f"client {n} never gets a reply"
            assert reserve.phase in (Phase.WAITING, Phase.ALONE), "it hangs"
            assert client.home in waits_at, "nobody keeps its time"
            up = {s for s in client.watched if self.up[client.home][s]}
            assert waits_at >= up - {client.home}
            for s in up:
                assert not self.shards[s].ready, f"client {n} waits, and shard {s} has a job"

    def jobs(self) -> int:
        """How many jobs there are, wherever they are."""
        return sum(len(shard.ready) + len(shard.reserved) for shard in self.shards)

    def key(self) -> Hashable:
        """Equal for worlds of which the same can become."""
        return (
            tuple(
                (
                    tuple(s.ready),
                    frozenset(s.reserved.items()),
                    frozenset(s.told),
                    frozenset(s.claimed.items()),
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
                    c.was_soon,
                    _key_of(c.reserve) if c.asking else None,
                )
                for c in self.clients
            ),
            tuple(self.puts),
            tuple(self.mishaps.values()),
            self.time,
            tuple(map(tuple, self.up)),
            frozenset(self.broken),
            tuple(map(tuple, self.channels.values())),
            tuple(map(tuple, self.said)),
            tuple(map(tuple, self.mails)),
            tuple(map(tuple, self.later)),
        )

    def copy(self) -> World:
        """Another world of which the same can become."""
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
        for name in ("up", "said", "mails", "later"):
            setattr(new, name, [list(row) for row in getattr(self, name)])
        return new

    # --- clients ---

    def _do_start(self, n: int) -> None:
        client = self.clients[n]
        client.asking = True
        client.until = client.plan.pop(0)
        client.polls = client.until <= self.time
        client.serial += 1
        client.seen_empty, client.heads = set(), {}
        client.was_soon = any(n in shard.soon for shard in self.shards)
        home = self.homes[client.home]
        concerned = sorted(client.watched | client.held)
        client.reserve = Reserve(home, n, concerned, client.until, home.now_mono, home.next_token)
        client.reserve.start()

    def replied(self, n: int, reply: Any) -> None:
        """The client reads a reply."""
        client = self.clients[n]
        assert client.asking, f"client {n} gets {reply!r} and has asked for nothing"
        client.asking = False
        if reply == TIMED_OUT:
            assert client.until <= self.time, "too early"
            assert client.seen_empty >= client.watched, "TIMED_OUT with a job all the time"
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
        self._tell_waited(home, n, token, Outcome.TIMED_OUT)

    def _do_put(self) -> None:
        shard, pri = self.puts.pop(0)
        self.last_job += 1
        self._make_ready(shard, (pri, self.last_job))

    def _expires(self) -> list[Event]:
        return [("expire", n, job) for n, shard in enumerate(self.shards) for job in shard.reserved]

    def _do_expire(self, n: int, job: Order) -> None:
        shard = self.shards[n]
        client = shard.reserved.pop(job)
        shard.told.discard(job)
        shard.soon.discard(client)
        self._make_ready(n, job)

    def _soons(self) -> list[Event]:
        return [
            ("soon", n, client)
            for n, shard in enumerate(self.shards)
            for client in sorted({shard.reserved[job] for job in shard.told} - shard.soon)
        ]

    def _do_soon(self, n: int, client: int) -> None:
        self.shards[n].soon.add(client)
        self.clients[client].was_soon = True
        for c, token, kind in list(self.shards[n].waiting):
            if c == client:
                self._stop_waiting(n, client)
                if kind == "claim":
                    self._tell_waited(n, client, token, Outcome.DEADLINE_SOON)
                else:
                    self._reply(n, client, DEADLINE_SOON)

    # --- workers ---

    def _downs(self) -> list[Event]:
        """With what it had sent last, or without."""
        return [("down", shard, kept) for shard in sorted(self.mortal) for kept in (True, False)]

    def _do_down(self, n: int, kept: bool) -> None:
        """A new worker takes its place at once; it has all jobs, and no sockets yet."""
        old, new = self.shards[n], Shard()
        new.ready = sorted([*old.ready, *old.reserved])
        self.shards[n] = new
        self.said[n], self.mails[n], self.later[n] = [], [], []
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
        """The new worker's socket comes, whether the end of the old one has been noticed or not."""
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
        if kind == "ended":
            self._lose(there, here)
        elif kind == "close":
            self._close(there, *rest)
        elif kind in ("head", "claim", "wait", "take", "cancel", "reserve"):
            self._take(here, there, kind, *rest)
        else:
            self._arrives(here, kind, *rest)

    def _take(self, home: int, n: int, kind: str, client: int, *rest: Any) -> None:
        """A frame of another home; proxies.py."""
        match kind, *rest:
            case "head", token:
                self._send(n, home, ("head_is", client, token, self.head(n, client)))
            case "claim", token, best:
                if not self.claim(n, client, best):
                    self._send(n, home, ("lost", client, token))
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
        """A frame of a shard at the client's home; router.py."""
        asking = self.clients[client]
        if asking.gone:
            return
        if kind == "output":
            assert asking.expected == n, f"client {client} gets {rest} and has not asked shard {n}"
            asking.expected = None
            self.replied(client, *rest)
            if self._waits(asking.home, client):
                self._stop_waiting(asking.home, client)
            self.mails[asking.home].append(("done", client, asking.serial))
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

    def _do_said(self, n: int) -> None:
        _, client, _ = frame = self.said[n].pop(0)
        self._send(n, self.clients[client].home, frame)

    def _do_mail(self, home: int) -> None:
        self._happens(home, self.mails[home].pop(0))

    def _do_later(self, home: int) -> None:
        self._happens(home, self.later[home].pop(0))

    def _happens(self, home: int, frame: Frame) -> None:
        kind, client, *rest = frame
        if kind != "done":
            self._arrives(home, kind, client, *rest)
        elif self.clients[client].serial == rest[0] and not self.clients[client].gone:
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

    def head(self, n: int, client: int) -> Head:
        """What this shard has for that client."""
        best = self._best(n, client)
        pri, job = best or (0, 0)
        return Head(best is not None, best is not None, client in self.shards[n].soon, pri, job)

    def claim(self, n: int, client: int, limit: Order) -> bool:
        """Gives the best job if it is not behind `limit`."""
        best = self._best(n, client)
        if best is None or best > limit:
            return False
        self._give(n, client, self._reserve(n, client))
        return True

    def wait(self, n: int, client: int, token: int, until: int) -> None:
        """Claims a job now or later."""
        shard = self.shards[n]
        assert not self._waits(n, client), "it waits already"
        assert client not in shard.claimed, "it has claimed one already"
        if self._best(n, client) is not None:
            shard.claimed[client] = token, self._reserve(n, client)
            self._tell_waited(n, client, token, Outcome.JOB)
        elif client in shard.soon:
            self._tell_waited(n, client, token, Outcome.DEADLINE_SOON)
        elif until <= self.time:
            self._tell_waited(n, client, token, Outcome.TIMED_OUT)
        else:
            shard.waiting.append((client, token, "claim"))

    def take(self, n: int, client: int, token: int) -> bool:
        """Gives the job that was claimed."""
        job = self._claimed(n, client, token)
        if job is not None:
            self._give(n, client, job)
        return job is not None

    def cancel(self, n: int, client: int, token: int) -> bool:
        """Stops waiting, or puts back what was claimed."""
        shard = self.shards[n]
        if (client, token, "claim") in shard.waiting or any(
            (c, kind) == (client, "reserve") for c, _, kind in shard.waiting
        ):
            self._stop_waiting(n, client)
            return True
        job = self._claimed(n, client, token)
        if job is not None:
            del shard.reserved[job]
            self._make_ready(n, job)
        return job is not None

    def _claimed(self, n: int, client: int, token: int) -> Order | None:
        shard = self.shards[n]
        if shard.claimed.get(client, (None,))[0] != token:
            return None
        _, job = shard.claimed.pop(client)
        return job if shard.reserved.get(job) == client and job not in shard.told else None

    def _reserve_alone(self, n: int, client: int, token: int, poll: bool) -> None:
        if self._best(n, client) is not None:
            self._give(n, client, self._reserve(n, client))
        elif client in self.shards[n].soon:
            self._reply(n, client, DEADLINE_SOON)
        elif poll:
            self._reply(n, client, TIMED_OUT)
        else:
            assert not self._waits(n, client), "it waits already"
            self.shards[n].waiting.append((client, token, "reserve"))

    def _reserve(self, n: int, client: int) -> Order:
        shard = self.shards[n]
        job = shard.ready.pop(0)
        shard.reserved[job] = client
        return job

    def _make_ready(self, n: int, job: Order) -> None:
        shard = self.shards[n]
        insort(shard.ready, job)
        for client, token, kind in list(shard.waiting):
            if self._best(n, client) is None:
                continue
            self._stop_waiting(n, client)
            reserved = self._reserve(n, client)
            if kind == "claim":
                shard.claimed[client] = token, reserved
                self._tell_waited(n, client, token, Outcome.JOB)
            else:
                self._give(n, client, reserved)

    def _give(self, n: int, client: int, job: Order) -> None:
        shard = self.shards[n]
        assert shard.reserved.get(job) == client and job not in shard.told, "given twice"
        shard.told.add(job)
        self._reply(n, client, n)

    def _reply(self, n: int, client: int, reply: Any) -> None:
        """A RESERVED is the number of its shard here: that is all its home learns by it."""
        home = self.clients[client].home
        if home == n:
            self.replied(client, reply)
        else:
            self.said[n].append(("output", client, reply))

    def _tell_waited(self, n: int, client: int, token: int, outcome: Outcome) -> None:
        home = self.clients[client].home
        frame = ("waited", client, token, outcome)
        if home == n:
            self.mails[home].append(frame)
        else:
            self._send(n, home, frame)

    def _close(self, n: int, client: int) -> None:
        """The session of this client ends here."""
        shard = self.shards[n]
        if self._waits(n, client):
            self._stop_waiting(n, client)
        shard.claimed.pop(client, None)
        shard.soon.discard(client)
        self.said[n] = [frame for frame in self.said[n] if frame[1] != client]
        for job in [job for job, holder in shard.reserved.items() if holder == client]:
            del shard.reserved[job]
            shard.told.discard(job)
            self._make_ready(n, job)


class Home:
    """claims.Shards for the connections of one worker; what it hears of itself comes later."""

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
            head = self.world.head(shard, session)
            self.world.later[shard].append(("head_is", session, token, head))

    def claim(self, shard: int, session: int, token: int, pri: int, job: int) -> None:
        client = self.world.clients[session]
        known = [(h.pri, h.id) for h in client.heads.values() if h.ready]
        assert (pri, job) == min(known), "there is a better one"
        if shard != self.home:
            self._expect(session, shard)
            self._send(shard, "claim", session, token, (pri, job))
        else:
            self._decided(session, token, self.world.claim(shard, session, (pri, job)))

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
        assert client.expected is None, f"{reply!r}, and shard {client.expected} answers too"
        assert not self.world._waits(self.home, session), f"{reply!r}, and home goes on waiting"
        self.world.replied(session, reply)

    def withdraw(self, session: int) -> None:
        self.world.clients[session].expected = None

    def _expect(self, session: int, shard: int) -> None:
        client = self.world.clients[session]
        assert client.expected is None, "two shards are to answer"
        client.expected = shard

    def _decided(self, session: int, token: int, answered: bool) -> None:
        serial = self.world.clients[session].serial
        frame = ("done", session, serial) if answered else ("lost", session, token)
        self.world.later[self.home].append(frame)


def _copy_of(thing: Any) -> Any:
    """With containers of its own; they hold nothing that changes."""
    new = copy.copy(thing)
    for name, value in vars(thing).items():
        if isinstance(value, (list, dict, set)):
            setattr(new, name, value.copy())
    return new


def _key_of(reserve: Reserve | None) -> Hashable:
    known = vars(reserve)
    return (
        reserve.phase if reserve else None,
        known["_token"],
        known["_asked"],
        frozenset(known["_pending"]),
        frozenset(known["_heads"].items()),
    )
