"""Clients of several workers and the model of one server get the same commands and must agree.

After every command the cluster becomes idle; then replies, jobs, tubes and the sums of all counters
equal the model's.

The order of two things is undefined with several workers, so the scripts avoid them: which job a
client that waits on several shards gets if one step makes jobs of several shards ready, and which
client of a dead worker left first. So no client waits on several shards while commands come in
batches, and a worker that dies has one client.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from core.model import Job, Model, Session, Tube
from core.rig import put_line
from core.workers.cluster import Cluster, ClusterClient, total
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from listing import page_of
from wire import stats_of

from beanstalkd_py.core.placement import shard_of
from beanstalkd_py.server.process.shared_memory import GAUGES

SESSIONS = 4
UNKNOWN = -1
LONG = 1000  # seconds: nothing becomes due during a test
MISSING = b"NOT_FOUND\r\n"
UNREACHABLE = b"INTERNAL_ERROR\r\n"

# As csrc/api/types.h counts them.
COUNTED = (
    *("put", "peek", "peek-ready", "peek-delayed", "peek-buried", "reserve"),
    *("reserve-with-timeout", "delete", "release", "use", "watch", "ignore", "bury", "kick"),
    *("touch", "stats", "stats-job", "stats-tube", "list-tubes", "list-tube-used"),
    *("list-tubes-watched", "pause-tube"),
)

Command = tuple[Any, ...]

tubes = st.integers(0, 8)  # 0 is `default`; the others are taken modulo those there are
ids = st.tuples(st.integers(0, 20), st.booleans())  # with True preferably one the client holds
priorities = st.sampled_from([0, 1, 1023, 1024])
delays = st.sampled_from([0, 0, LONG])

TUBE_COMMANDS = st.one_of(
    st.tuples(st.just("use"), tubes),
    st.tuples(st.just("watch"), tubes),
    st.tuples(st.just("ignore"), tubes),
)
JOB_COMMANDS = st.one_of(
    st.tuples(st.just("put"), priorities, delays),
    st.tuples(st.just("put"), priorities, st.just(0)),
    st.tuples(st.just("reserve"), st.just(0)),
    st.tuples(st.just("reserve_batch"), st.integers(1, 5), st.just(0)),
    st.tuples(st.just("put_wrong")),
    st.tuples(st.just("abort")),
    st.tuples(st.just("await_job"), ids, st.just(0)),
    st.tuples(st.just("delete"), ids),
    st.tuples(st.just("release"), ids, priorities, delays),
    st.tuples(st.just("bury"), ids, priorities),
    st.tuples(st.just("touch"), ids),
    st.tuples(st.just("kick"), st.integers(0, 3)),
    st.tuples(st.just("kick_job"), ids),
    st.tuples(st.just("reserve_job"), ids),
    st.tuples(st.just("pause"), tubes, st.sampled_from([0, LONG])),
    st.tuples(st.just("peek"), ids),
    st.tuples(st.just("peek_first"), st.sampled_from(["ready", "delayed", "buried"])),
    st.tuples(st.just("truncate"), tubes),
    st.tuples(st.just("move"), ids, tubes, priorities, delays),
    st.tuples(st.just("watched")),
    st.tuples(st.just("used")),
)
WAITS = st.one_of(
    st.tuples(st.just("reserve"), st.sampled_from([None, LONG])),
    st.tuples(st.just("reserve_batch"), st.integers(1, 5), st.just(LONG)),
    st.tuples(st.just("await_job"), ids, st.just(LONG)),
)


class Pair:
    """The same client on both sides; `unread` is its input during a wait."""

    def __init__(self, model: Session, real: ClusterClient) -> None:
        self.model = model
        self.real = real
        self.unread: list[Command] = []
        self.put_once = False
        self.reserved_once = False

    @property
    def home(self) -> int:
        return self.real.home

    @property
    def waits(self) -> bool:
        return self.model.waits


class Sharded(RuleBasedStateMachine):
    """Some clients at some homes, and an observer at each worker."""

    @initialize(workers=st.sampled_from([2, 3]), homes=st.tuples(*[st.integers(0, 2)] * SESSIONS))
    def start(self, workers: int, homes: tuple[int, ...]) -> None:
        self.cluster = Cluster(workers)
        self.model = Model(0)
        self.model.may_join = self.may_join
        self.sent: Counter[str] = Counter()
        self.steps = 0
        self.born: dict[str, tuple[Tube, int]] = {}
        spread = [self.cluster.tube_on(s, n) for n in range(2) for s in range(workers)]
        self.names = ["default", *[name.decode() for name in spread]]
        self.observers = [self.open(shard) for shard in range(workers)]
        self.pairs = [self.open(home % workers) for home in homes]
        self.cluster.settle()

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            self.cluster.__exit__(None, None, None)

    def open(self, home: int) -> Pair:
        return Pair(self.model.open(), self.cluster.client(home))

    @property
    def everyone(self) -> list[Pair]:
        return [*self.observers, *self.pairs]

    def shard(self, tube: Tube) -> int:
        return shard_of(tube.name.encode(), self.cluster.workers)

    def may_join(self, session: Session, first: Job, job: Job) -> bool:
        """A batch has jobs of one worker, and none behind a better one of another worker."""
        shard = self.shard(first.tube)
        others = [one.pri for one in self.model.free(session) if self.shard(one.tube) != shard]
        return self.shard(job.tube) == shard and job.pri <= min(others, default=job.pri)

    def waits_widely(self, but: Pair | None = None) -> bool:
        """Does a client wait whose reply depends on when messages arrive?

        It waits on several shards, or for several jobs of another worker than its own: it may get
        those that become ready until that worker receives its claim.
        """
        for pair in self.pairs:
            if pair is not but and pair.model.waiting_since:
                shards = set(map(self.shard, pair.model.watched))
                if len(shards) > 1 or (pair.model.batch > 1 and shards != {pair.home}):
                    return True
        return False

    # --- rules ---

    @rule(which=st.integers(0, SESSIONS - 1), command=JOB_COMMANDS)
    def a_command(self, which: int, command: Command) -> None:
        self.batch(which, [command])

    @rule(which=st.integers(0, SESSIONS - 1), command=TUBE_COMMANDS)
    def a_command_on_tubes(self, which: int, command: Command) -> None:
        self.batch(which, [command])

    @rule(which=st.integers(0, SESSIONS - 1), command=WAITS)
    def a_reserve_that_waits(self, which: int, command: Command) -> None:
        self.batch(which, [command])

    @rule(
        which=st.integers(0, SESSIONS - 1),
        first=st.lists(TUBE_COMMANDS, max_size=1),
        commands=st.lists(JOB_COMMANDS, min_size=2, max_size=10),
        last=st.lists(WAITS, max_size=1),
        cut=st.none() | st.integers(0, 100),
    )
    def several_commands_at_once(
        self,
        which: int,
        first: list[Command],
        commands: list[Command],
        last: list[Command],
        cut: int | None,
    ) -> None:
        assume(not self.waits_widely())
        self.batch(which, without_late_ids([*first, *delayed_once(commands), *last]), cut)

    @rule(which=st.integers(0, SESSIONS - 1), lines=st.lists(st.sampled_from(["watched", "used"])))
    def commands_after_a_reserve_that_waits(self, which: int, lines: list[str]) -> None:
        pair = self.pairs[which]
        if pair.waits:
            pair.unread += [(line,) for line in lines]
            pair.real.send(b"".join(self.bytes_of(pair, (line,)) for line in lines))
            self.agree()

    @rule(which=st.integers(0, SESSIONS - 1), cut=st.integers(0, 15))
    def a_wait_is_aborted(self, which: int, cut: int) -> None:
        """Unless another line precedes that."""
        pair = self.pairs[which]
        line = self.bytes_of(pair, ("abort",))
        if pair.unread:
            pair.unread.append(("abort",))
        else:
            self.execute(pair, ("abort",))
        pair.real.send(line[:cut])
        pair.real.send(line[cut:])
        self.agree()

    @rule(which=st.integers(0, SESSIONS - 1), home=st.integers(0, 2), half=st.booleans())
    def a_client_leaves(self, which: int, home: int, half: bool) -> None:
        pair = self.pairs[which]
        shards = {self.shard(job.tube) for job in self.model.held_by(pair.model)}
        assume(len(shards) < 2 or not self.waits_widely(but=pair))
        if half:
            pair.real.finish()
            if pair.waits:
                pair.model.stop_waiting()
                pair.model.out += b"TIMED_OUT\r\n"
            self.agree()
        self.model.close(pair.model)
        pair.real.close()
        self.pairs[which] = self.open(home % self.cluster.workers)
        self.cluster.settle()
        self.agree()

    @rule(shard=st.integers(0, 2), noticed=st.booleans())
    def a_worker_dies_and_comes_back(self, shard: int, noticed: bool) -> None:
        """Kill a worker with its clients, tubes and jobs: these tests have no binlog."""
        shard %= self.cluster.workers
        waiting = [
            pair
            for pair in self.pairs
            if pair.model.waiting_since
            and pair.home != shard
            and shard in set(map(self.shard, pair.model.watched))
        ]
        assume(len(waiting) < 2)
        at_home = [n for n, pair in enumerate(self.pairs) if pair.home == shard]
        assume(len(at_home) < 2)
        held = [self.model.held_by(self.pairs[n].model) for n in at_home]
        at = {self.shard(job.tube) for jobs in held for job in jobs} - {shard}
        assume(len(at) < 2 or not self.waits_widely())

        self.cluster.kill(shard)
        if noticed:
            self.cluster.settle()
        counters = self.cluster.shared.worker[shard]
        for gauge in GAUGES:  # as the supervisor does
            setattr(counters, gauge, 0)
        self.forget(shard)
        if noticed:
            self.agree(down=shard)
            self.commands_for_a_worker_that_is_down(shard)
        self.cluster.start(shard)
        self.cluster.settle()
        self.the_new_worker_lacks_jobs()
        self.observers[shard] = self.open(shard)
        for n in at_home:
            self.pairs[n] = self.open(shard)
        self.cluster.settle()
        self.agree()

    def forget(self, shard: int) -> None:
        model = self.model
        for job in list(model.jobs.values()):
            if self.shard(job.tube) == shard:
                del model.jobs[job.id]
        gone = [pair for pair in self.everyone if pair.home == shard]
        for pair in gone:
            pair.model.stop_waiting()
            pair.unread = []
        for pair in gone:
            model.close(pair.model)
        for tube in model.tubes.values():
            if self.shard(tube) == shard:
                tube.total = tube.deletes = tube.pauses = tube.pause = tube.unpause_at = 0
                # Their worker takes the order from later frames of the workers that use them.
                self.born[tube.name] = tube, UNKNOWN
        self.steps += 1

    def the_new_worker_lacks_jobs(self) -> None:
        """Clients that wait for jobs of the old worker are answered."""
        for session in self.model.sessions:
            if session.awaited and session.awaited not in self.model.jobs:
                session.stop_waiting()
                session.out += MISSING

    def commands_for_a_worker_that_is_down(self, shard: int) -> None:
        pair = next(pair for pair in self.observers if pair.home != shard)
        there = self.names[1 + shard].encode()
        assert self.shard(Tube(there.decode(), 0)) == shard
        before = pair.model.use.name.encode()
        script = b"".join(
            [
                b"use %b\r\n" % there,
                put_line(b"x"),
                b"peek-ready\r\nkick 1\r\nlist-tube-used\r\n",
                b"use %b\r\n" % before,
                b"stats-tube %b\r\npause-tube %b 1\r\n" % (there, there),
                b"watch %b\r\nignore default\r\nreserve-with-timeout 0\r\n" % there,
                b"watch default\r\nignore %b\r\n" % there,
            ]
        )
        replies = pair.real.ask(script)
        error = UNREACHABLE
        using = b"USING %b\r\n"
        assert replies == b"".join(
            [
                using % there,
                error * 3,
                using % there,
                using % before,
                error * 2,
                b"WATCHING 2\r\nWATCHING 1\r\n",
                error,
                b"WATCHING 2\r\nWATCHING 1\r\n",
            ]
        )
        self.sent.update(
            {
                **dict.fromkeys(["use", "watch", "ignore"], 2),
                **dict.fromkeys(["put", "peek-ready", "kick", "list-tube-used"], 1),
                **dict.fromkeys(["stats-tube", "pause-tube", "reserve-with-timeout"], 1),
            }
        )
        self.model.last_id += 1
        pair.put_once = pair.reserved_once = True

    # --- both sides ---

    def batch(self, which: int, commands: list[Command], cut: int | None = None) -> None:
        """Sends these in one piece, or in two with a rest between them."""
        pair = self.pairs[which]
        if pair.waits:
            return
        data = b""
        for command in commands:
            data += self.bytes_of(pair, command)
            self.execute(pair, command)
        if cut is None:
            pair.real.send(data)
        else:
            pair.real.send(data[: cut % len(data)])
            pair.real.send(data[cut % len(data) :])
        self.agree()

    def number(self, pair: Pair, choice: tuple[int, bool]) -> int:
        index, own = choice
        held = sorted(job.id for job in self.model.held_by(pair.model))
        if own and held:
            return held[index % len(held)]
        return index % (self.model.last_id + 2)

    def name(self, index: int) -> str:
        return self.names[index and 1 + index % (len(self.names) - 1)]

    def arguments(self, pair: Pair, command: Command) -> list[Any]:
        """Return the command for the drawn numbers."""
        kind, *drawn = command
        if drawn and isinstance(drawn[0], tuple):
            drawn[0] = self.number(pair, drawn[0])
        if kind == "move":
            drawn[1] = self.name(drawn[1])
        elif kind in ("use", "watch", "ignore", "pause", "truncate"):
            drawn[0] = self.name(drawn[0])
        return drawn

    def bytes_of(self, pair: Pair, command: Command) -> bytes:
        kind = command[0]
        match kind, *self.arguments(pair, command):
            case "put", pri, delay:
                return put_line(b"x", pri, delay, LONG)
            case "abort", *_:
                return b"reserve-abort\r\n"
            case "put_wrong", *_:
                return b"put 0 0 1 1\r\nxxx"
            case "reserve", None:
                return b"reserve\r\n"
            case "reserve", seconds:
                return b"reserve-with-timeout %d\r\n" % seconds
            case "await_job", number, seconds:
                return b"wait %d %d\r\n" % (seconds, number)
            case "pause", name, seconds:
                return b"pause-tube %b %d\r\n" % (name.encode(), seconds)
            case "peek_first", state:
                return b"peek-%b\r\n" % state.encode()
            case "watched", *_:
                return b"list-tubes-watched\r\n"
            case "used", *_:
                return b"list-tube-used\r\n"
            case _, *rest:
                words = [kind.replace("_", "-"), *map(str, rest)]
                return " ".join(words).encode() + b"\r\n"
        raise AssertionError(command)

    def execute(self, pair: Pair, command: Command) -> None:
        """The model's part."""
        kind, *_ = command
        arguments = self.arguments(pair, command)
        self.sent[self.bytes_of(pair, command).split()[0].decode()] += 1
        own: Callable[..., None] | None = getattr(self, f"model_{kind}", None)
        if own is not None:
            own(pair, *arguments)
        elif kind == "put":
            pair.put_once = True
            self.model.put(pair.model, *arguments, LONG)
        else:
            if kind in ("reserve", "reserve_batch"):
                pair.reserved_once = True
            getattr(self.model, kind)(pair.model, *arguments)
        for other in self.pairs:
            self.go_on(other)

    def go_on(self, pair: Pair) -> None:
        """Execute the input that arrived during a wait that has ended."""
        while pair.unread and not pair.waits:
            self.execute(pair, pair.unread.pop(0))

    def model_put_wrong(self, pair: Pair) -> None:
        """The line takes an id, and the body is refused."""
        self.model.last_id += 1
        pair.put_once = True
        pair.model.out += b"EXPECTED_CRLF\r\n"

    def model_reserve_job(self, pair: Pair, number: int) -> None:
        job = self.model.jobs.get(number)
        if job is not None and job.state != "reserved":
            pair.reserved_once = True
        self.model.reserve_job(pair.model, number)

    def model_peek(self, pair: Pair, number: int) -> None:
        self.found(pair, self.model.jobs.get(number))

    def model_peek_first(self, pair: Pair, state: str) -> None:
        jobs = self.model.in_state(pair.model.use, state)
        order = (lambda job: job.order) if state == "ready" else (lambda job: (job.at, job.id))
        self.found(pair, min(jobs, key=order, default=None))

    def found(self, pair: Pair, job: Job | None) -> None:
        pair.model.out += MISSING if job is None else b"FOUND %d 1\r\nx\r\n" % job.id

    def model_watched(self, pair: Pair) -> None:
        names = b"".join(b"- %b\n" % tube.name.encode() for tube in pair.model.watched)
        pair.model.out += b"OK %d\r\n---\n%b\r\n" % (len(names) + 4, names)

    def model_used(self, pair: Pair) -> None:
        pair.model.out += b"USING %b\r\n" % pair.model.use.name.encode()

    # --- what must be equal ---

    def agree(self, down: int | None = None) -> None:
        """Check that all clients have read the same."""
        self.steps += 1
        for pair in self.pairs:
            self.go_on(pair)
        self.model.run_until(self.model.now + 1)
        for name, tube in self.model.tubes.items():
            if self.born.get(name, (None,))[0] is not tube:
                self.born[name] = tube, self.steps
        for pair in self.everyone:
            if pair.home == down:
                continue
            assert pair.real.read() == pair.model.out
            pair.model.out = b""

    @invariant()
    @precondition(lambda self: hasattr(self, "cluster"))
    def nothing_is_lost(self) -> None:
        jobs = self.model.jobs.values()
        for state in ("ready", "reserved", "delayed", "buried"):
            assert total(self.cluster, state) == sum(job.state == state for job in jobs), state
        urgent = sum(job.state == "ready" and job.pri < 1024 for job in jobs)
        assert total(self.cluster, "urgent") == urgent
        assert total(self.cluster, "total_jobs") == self.model.total
        assert total(self.cluster, "tubes") == len(self.model.tubes)
        assert total(self.cluster, "waiting") == sum(
            bool(pair.model.waiting_since) for pair in self.pairs
        )
        assert total(self.cluster, "connections") == len(self.everyone)
        assert total(self.cluster, "producers") == sum(pair.put_once for pair in self.everyone)
        assert total(self.cluster, "workers") == sum(pair.reserved_once for pair in self.everyone)
        assert total(self.cluster, "job_timeouts") == 0
        for n, name in enumerate(COUNTED):
            count = sum(self.cluster.shared.worker[i].cmd[n] for i in range(self.cluster.workers))
            assert count == self.sent[name], name

    @invariant()
    @precondition(lambda self: hasattr(self, "cluster"))
    def everything_shows(self) -> None:
        """Jobs and tubes, as one of the workers sees them."""
        observer = self.observers[self.steps % self.cluster.workers]
        numbers = range(max(1, self.model.last_id - 15), self.model.last_id + 1)
        lines = [b"stats-job %d\r\n" % number for number in numbers]
        lines += [b"stats-tube %b\r\n" % name.encode() for name in self.names]
        self.sent.update({"stats-job": len(numbers), "stats-tube": len(self.names)})
        replies = split(observer.real.ask(b"".join(lines)))
        for number in numbers:
            assert self.job_seen(replies.pop(0)) == self.job_expected(number)
        for name in self.names:
            assert self.tube_seen(replies.pop(0)) == self.tube_expected(name), name
        assert replies == []
        self.lists_agree(observer)
        self.sent["list-tubes"] += 1
        listed = observer.real.names(b"list-tubes")
        assert sorted(listed) == sorted(self.model.tubes)
        assert listed[0] == "default"
        born = [self.born[name][1] for name in listed[1:] if self.born[name][1] != UNKNOWN]
        assert born == sorted(born), "not in the order in which they were created"

    def lists_agree(self, observer: Pair) -> None:
        """The jobs of every tube are listed, page by page."""
        for name in self.names:
            jobs = [job for job in self.model.jobs.values() if job.tube.name == name]
            rows, after = [], 0
            for last in (False, True):
                limit = 1000 if last else max(1, len(jobs) // 2)
                line = b"list-jobs %b any %d %d\r\n" % (name.encode(), after, limit)
                page, after = page_of(observer.real.ask(line))
                rows += page
                if after == 0:
                    break
            shown = [(int(row["id"]), row["state"], int(row["reserves"])) for row in rows]
            assert shown == [(job.id, job.state, job.counts["reserves"]) for job in jobs], name

    def job_seen(self, reply: bytes) -> dict[str, str]:
        if reply == MISSING:
            return {}
        shown = stats_of(reply)
        left = int(shown.pop("time-left"))
        assert left == 0 or LONG - 100 < left <= LONG
        return {key: value for key, value in shown.items() if key not in ("age", "file")}

    def job_expected(self, number: int) -> dict[str, str]:
        job = self.model.jobs.get(number)
        if job is None:
            return {}
        numbers = {"pri": job.pri, "delay": job.delay, "ttr": LONG, **job.counts}
        first = {"id": str(job.id), "tube": f'"{job.tube.name}"', "state": job.state}
        return {**first, **{key: str(value) for key, value in numbers.items()}}

    def tube_seen(self, reply: bytes) -> dict[str, str]:
        if reply == MISSING:
            return {}
        shown = stats_of(reply)
        left = int(shown.pop("pause-time-left"))
        assert (left > LONG - 100) == (shown["pause"] != "0")
        return shown

    def tube_expected(self, name: str) -> dict[str, str]:
        tube = self.model.tubes.get(name)
        if tube is None:
            return {}
        counts = {
            f"current-jobs-{state}": len(self.model.in_state(tube, state))
            for state in ("ready", "reserved", "delayed", "buried")
        }
        sessions = self.model.sessions
        watching = [session for session in sessions if tube in session.watched]
        numbers = {
            **counts,
            "current-jobs-urgent": sum(j.pri < 1024 for j in self.model.in_state(tube, "ready")),
            "total-jobs": tube.total,
            "current-using": sum(session.use is tube for session in sessions),
            "current-watching": len(watching),
            "current-waiting": sum(bool(session.waiting_since) for session in watching),
            "cmd-delete": tube.deletes,
            "cmd-pause-tube": tube.pauses,
            "pause": LONG if tube.pause else 0,
        }
        return {"name": f'"{name}"', **{key: str(value) for key, value in numbers.items()}}


def delayed_once(commands: list[Command]) -> list[Command]:
    """Without the second delay and those after it: the clocks do not decide which is first."""
    kept: list[Command] = []
    for command in commands:
        again = is_delayed(command) and any(map(is_delayed, kept))
        kept.append((*command[:-1], 0) if again else command)
    return kept


def without_late_ids(commands: list[Command]) -> list[Command]:
    """Without puts after a move: its new job may have a higher id, from the worker of the old."""
    kept: list[Command] = []
    for command in commands:
        late = any(earlier[0] == "move" for earlier in kept)
        if not (late and command[0] in ("put", "put_wrong", "move")):
            kept.append(command)
    return kept


def is_delayed(command: Command) -> bool:
    return command[0] in ("put", "release", "move") and bool(command[-1] > 0)


def split(replies: bytes) -> list[bytes]:
    """One by one: MISSING, or a first line with the size of what follows."""
    parts = []
    while replies:
        line, _, rest = replies.partition(b"\r\n")
        size = int(line.split()[1]) + 2 if line.startswith(b"OK ") else 0
        parts.append(line + b"\r\n" + rest[:size])
        replies = rest[size:]
    return parts


TestSharded = pytest.mark.timeout(600)(Sharded.TestCase)
TestSharded.settings = settings(
    max_examples=max(1, settings.default.max_examples // 2),  # type: ignore[union-attr]
    stateful_step_count=40,
)
