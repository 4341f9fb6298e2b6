"""Clients that use every command that writes to a binlog, and record the acknowledged changes.

An Actor makes the bytes of its next step and takes the replies to it. It uses only jobs of its own,
so that any number of actors can run at once. If the server dies, at most one step of each actor is
unacknowledged.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from core.rig import Rig, RigClient, put_line

TUBES = (b"default", b"mail", b"t" * 200)
LONG = 100_000  # seconds; no delay and no TTR expires during a test
_WITH_BODY = re.compile(rb"(?:RESERVED \d+|FOUND \d+|OK) (\d+)\r\n")


@dataclass
class Known:
    """The last acknowledged state of a job."""

    tube: bytes
    body: bytes
    pri: int
    delay: int
    state: str
    releases: int = 0
    buries: int = 0
    kicks: int = 0
    held: bool = False  # reserved by its actor, because a bury or release was refused

    def stats(self) -> dict[str, str]:
        """Return the fields of stats-job that a restart must keep."""
        numbers = {
            "pri": self.pri,
            "delay": self.delay,
            "ttr": LONG,
            "releases": self.releases,
            "buries": self.buries,
            "kicks": self.kicks,
        }
        shown = {key: str(number) for key, number in numbers.items()}
        return {"tube": f'"{self.tube.decode()}"', "state": self.state, **shown}


@dataclass
class Step:
    """Bytes to send at once, the expected first words of the replies, and the resulting job."""

    data: bytes
    words: list[bytes]
    job: int | None
    after: Known
    gone: bool = False
    key: bytes = b""
    moved: bool = False  # to a job with another id, as in `after`


@dataclass
class Actor:
    """One client. `pending` is the step without replies."""

    name: str
    put_share: float = 0.4
    largest: int = 300
    # C beanstalkd does not write a release without delay, nor does beanstalkd_py on a full disk.
    plain_releases: bool = True
    tubes: tuple[bytes, ...] = TUBES
    # Puts have unique keys, which stay beyond the ends of their jobs.
    unique: bool = False
    # Jobs move to other tubes, as other jobs.
    moves: bool = False
    known: dict[int, Known] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    keys: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    """Tube and key of each job."""
    pending: Step | None = None
    refused: int = 0
    steps: int = 0

    def __post_init__(self) -> None:
        self.dice = random.Random(self.name)

    def next(self) -> bytes:
        """Return the bytes of the next step."""
        assert self.pending is None
        self.steps += 1
        putting = not self.known or self.dice.random() < self.put_share
        self.pending = self._put() if putting else self._change(self.dice.choice([*self.known]))
        return self.pending.data

    def take(self, replies: list[bytes]) -> None:
        """Take all replies to the pending step."""
        step, self.pending = self.pending, None
        assert step is not None and len(replies) == len(step.words)
        words = [reply.split()[0] for reply in replies]
        if words == step.words:
            self._done(step, replies)
            return
        assert words[:-1] == step.words[:-1]
        assert words[-1] in (b"OUT_OF_MEMORY", b"INTERNAL_ERROR", b"NOT_FOUND"), replies
        self.refused += 1
        if step.words[0] == b"RESERVED":
            assert step.job is not None
            self.known[step.job].held = True

    def _done(self, step: Step, replies: list[bytes]) -> None:
        is_new = step.job is None or step.moved
        job = int(replies[-1].split()[1]) if is_new else step.job
        assert job is not None
        if step.moved:
            assert step.job is not None
            del self.known[step.job]
            self.gone.add(step.job)
            self.keys.pop(step.job, None)
        if step.key:
            self.keys[job] = (step.after.tube, step.key)
        if step.gone:
            del self.known[job]
            self.gone.add(job)
        else:
            self.known[job] = step.after

    def _put(self) -> Step:
        dice = self.dice
        size = dice.choice([0, dice.randrange(self.largest), dice.randrange(self.largest)])
        body = b"%b %d " % (self.name.encode(), self.steps) + dice.randbytes(size)
        delay = dice.choice([0, 0, LONG])
        pri = dice.randrange(3000)
        job = Known(dice.choice(self.tubes), body, pri, delay, "delayed" if delay else "ready")
        use, put = b"use %b\r\n" % job.tube, put_line(body, pri, delay, LONG)
        if not self.unique:
            return Step(use + put, [b"USING", b"INSERTED"], None, job)
        key = b"%b-%d" % (self.name.replace(" ", "-").encode(), self.steps)
        data = use + b"with unique=%b window=%d\r\n" % (key, LONG) + put
        return Step(data, [b"USING", b"WITH", b"INSERTED"], None, job, key=key)

    def _change(self, number: int) -> Step:
        dice, job = self.dice, self.known[number]
        what = dice.choice(["delete", "bury", "release", "delay", "kick"] + ["move"] * self.moves)
        if what == "kick" and (job.held or job.state == "ready"):
            what = "delete"
        if what == "delete":
            return Step(b"delete %d\r\n" % number, [b"DELETED"], number, job, gone=True)
        after = Known(**{**vars(job), "held": False})
        if what == "move":
            # A longer name may not fit into the line.
            after.tube = dice.choice([tube for tube in self.tubes if len(tube) < 100])
            after.pri = dice.randrange(3000)
            after.delay = dice.choice([0, LONG])
            after.state = "delayed" if after.delay else "ready"
            line = b"move %d %b %d %d\r\n" % (number, after.tube, after.pri, after.delay)
            return Step(line, [b"MOVED"], number, after, moved=True)
        if what == "kick":
            after.kicks += 1
            after.state = "ready"
            return Step(b"kick-job %d\r\n" % number, [b"KICKED"], number, after)
        first, words = b"reserve-job %d\r\n" % number, [b"RESERVED"]
        if job.held:
            first, words = b"", []
        after.pri = dice.randrange(3000)
        if what == "bury":
            after.buries += 1
            after.state = "buried"
            line = b"bury %d %d\r\n" % (number, after.pri)
            return Step(first + line, [*words, b"BURIED"], number, after)
        after.releases += 1
        after.delay = LONG if what == "delay" or not self.plain_releases else 0
        after.state = "delayed" if after.delay else "ready"
        line = b"release %d %d %d\r\n" % (number, after.pri, after.delay)
        return Step(first + line, [*words, b"RELEASED"], number, after)


def replies_in(data: bytes) -> list[bytes]:
    """Return the complete replies at the start of the bytes."""
    found = []
    while (end := data.find(b"\r\n") + 2) > 1:
        body = _WITH_BODY.match(data)
        end += int(body[1]) + 2 if body else 0
        if len(data) < end:
            break
        found.append(data[:end])
        data = data[end:]
    return found


def run_steps(actor: Actor, client: RigClient, steps: int) -> None:
    """Run steps one by one; an exception leaves the last one pending."""
    for _ in range(steps):
        actor.take(replies_in(client.ask(actor.next())))


def check(actors: Sequence[Actor], rig: Rig) -> None:
    """Check that every acknowledged job is unchanged, and that there are no other jobs."""
    client = rig.client()
    expected: set[int] = set()
    pending_bodies = set()
    for actor in actors:
        step = actor.pending
        if step is not None and (step.job is None or step.moved):
            pending_bodies.add(step.after.body)
        for number, job in actor.known.items():
            expected.add(number)
            if step is not None and step.job == number:
                _check_pending(client, number, job, step)
                continue
            assert client.body(number) == job.body
            now, promised = shown(client, number, job), job.stats()
            if job.held and now["state"] == "ready":
                # Compaction has moved the job as reserved, and a start makes it ready.
                promised["state"] = "ready"
            assert now == promised
        for number in actor.gone:
            expected.add(number)
            assert client.body(number) is None, f"job {number} was deleted and is back"
    found = {}
    for number in range(1, int(rig.shared.last_id) + 1):
        if number not in expected:
            body = client.body(number)
            assert body is None or body in pending_bodies, f"no actor put job {number}"
            found[body] = number
    for step in (actor.pending for actor in actors if actor.pending is not None):
        if step.moved and step.job is not None and client.body(step.job) is None:
            assert step.after.body in found, f"job {step.job} was moved and is lost"
            stats = shown(client, found[step.after.body], step.after)
            assert stats == step.after.stats()
    check_keys(actors, client.ask)


def check_keys(actors: Iterable[Actor], ask: Callable[[bytes], bytes]) -> None:
    """Check that a put with the key of any job, live or ended, inserts nothing."""
    for actor in actors:
        step = actor.pending
        for number, (tube, key) in actor.keys.items():
            if step is not None and step.moved and step.job == number:
                continue  # its key may be free
            assert ask(b"use %b\r\n" % tube) == b"USING %b\r\n" % tube
            data = b"with unique=%b\r\n" % key + put_line(b"duplicate")
            wanted = b"WITH\r\nINSERTED %d\r\n" % number
            got = ask(data)
            assert got == wanted, f"key of job {number}: {got!r}"


def shown(client: RigClient, number: int, job: Known) -> dict[str, str]:
    """Return the part of stats-job that a restart must keep."""
    stats = client.job(number)
    return {key: stats[key] for key in job.stats()}


def _check_pending(client: RigClient, number: int, job: Known, step: Step) -> None:
    """Check that the pending step was executed completely or not at all."""
    body = client.body(number)
    if body is None:
        assert step.gone or step.moved
        return
    assert body == job.body
    if step.moved:
        assert shown(client, number, job) == job.stats()
        return
    assert shown(client, number, job) in (job.stats(), step.after.stats())
