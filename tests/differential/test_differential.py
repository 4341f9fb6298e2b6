"""Scripts made up by hypothesis, played against our server and C beanstalkd side by side.

The scripts stay clear of what C beanstalkd leaves to chance or does wrong: two clients never wait
for the same tube (the order depends on its past), no line has a lone CR or a length it
cannot see the end of, nobody looks at a job whose body is still arriving, and no time is short
enough to pass.

With several workers they also stay clear of what is looser there: when somebody leaves who holds
jobs at several workers, each gives its own back, and which of them serves first somebody who waits
for all is left open (tests/server/workers/test_one_view.py has what is not: all of them come back).
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from side_by_side import Pair, both
from wire import inserted_id

from beanstalkd_py.core.placement import shard_of

pytestmark = [pytest.mark.differential, pytest.mark.timeout(900)]

MAX_SIZE = 1000
NAMES = ["A", "B", "C"]
TUBES = ["{a}", "{b}", "{c}", "default"]
OWN_TUBES = TUBES[:3]
NO_JOB = 2**63
SHRINKING_S = 60
PUT_NOTHING = b"put 0 1000 1000 0\r\n\r\n"
# A server that does not read acknowledges late, and a client sends no more than ten packets, the
# end of its input among them, without that.
MAX_UNREAD = 3
BLOCKING = {b"reserve\r\n", b"reserve-with-timeout 1000\r\n"}
AT_ONCE = b"reserve-with-timeout 0\r\n"


class Command(NamedTuple):
    """Bytes to send, with names of tubes and jobs to be filled in; `{z*9}` is nine z."""

    text: bytes
    job: int = 0
    replies: int = 1
    may_be_cut: bool = True


class Step(NamedTuple):
    """What one connection does next; `cuts` are percentages of its bytes."""

    name: str
    commands: list[Command]
    cuts: list[int]
    hold: bool = False
    ending: str = ""

    def __repr__(self) -> str:
        """A line of the failing script that hypothesis prints."""
        texts = [f"{command.text!r}#{command.job}" for command in self.commands]
        return " ".join([self.name, self.ending, *texts, f"{self.cuts}", "hold" * self.hold])


priorities = st.sampled_from([0, 1, 5, 1023, 1024, 2**32 - 1])
delays = st.sampled_from([0, 0, 0, 100, 200, 300])
job_numbers = st.integers(0, 9)
UNLUCKY = 9  # the number of a job that never was


def line(*forms: str) -> st.SearchStrategy[Command]:
    """One of these lines; `{job}`, `{pri}`, `{delay}` and `{tube}` are chosen."""

    def fill(form: str, job: int, pri: int, delay: int, tube: str) -> Command:
        text = form.replace("{pri}", str(pri)).replace("{delay}", str(delay))
        return Command(f"{text.replace('{tube}', tube)}\r\n".encode(), job)

    return st.builds(
        fill, st.sampled_from(forms), job_numbers, priorities, delays, st.sampled_from(TUBES)
    )


def put(pri: int, delay: int, body: bytes | int, ending: bytes) -> Command:
    """A put with its body; what is too big is so by its true size."""
    size, text = (body, b"{z*%d}" % body) if isinstance(body, int) else (len(body), body)
    return Command(b"put %d %d 1000 %d\r\n" % (pri, delay, size) + text + ending)


bodies = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([b"", b"\r\n", b"a\r\nb", b"\r", b"quit\r\n", b"put 0 0 100 1\r\n"]),
    st.sampled_from([MAX_SIZE - 1, MAX_SIZE, MAX_SIZE + 1, 2 * MAX_SIZE]),
)
good_puts = st.builds(put, priorities, delays, bodies, st.just(b"\r\n"))
bad_endings = st.builds(
    put, priorities, delays, bodies, st.sampled_from([b"ab", b"\n\r", b"\r\r", b"  "])
)
bad_puts = st.builds(
    lambda form, body: Command(b"put " + form + b"\r\n" + body + b"\r\n", replies=2),
    st.sampled_from([b"0 0 100 3 x", b"0 0 100 3x", b"0 0 100", b"-1 0 100 3", b"", b"0 x 100 3"]),
    st.sampled_from([b"abc", b"list-tube-used", b"delete 0", b""]),
)
on_jobs = line(
    "delete {job}",
    "release {job} {pri} {delay}",
    "bury {job} {pri}",
    "touch {job}",
    "kick-job {job}",
    "reserve-job {job}",
)
looks = line("peek {job}", "stats-job {job}", "peek-ready", "peek-delayed", "peek-buried")
on_tubes = line("use {tube}", "watch {tube}", "watch {tube}", "ignore {tube}", "kick 1", "kick 3")
reports = line("stats", "stats-tube {tube}", "list-tubes", "list-tubes-watched", "list-tube-used")
reserves = line("reserve", "reserve-with-timeout 1000", "reserve-with-timeout 0")
pauses = st.builds(
    lambda tube, seconds: Command(f"pause-tube {tube} {seconds}\r\n".encode()),
    st.sampled_from(OWN_TUBES),
    st.sampled_from([0, 0, 1000]),
)


def mutate(command: Command, place: int, change: bytes, removed: int) -> Command:
    """Change one place of a line (not its ending)."""
    text = command.text[:-2]
    place %= len(text) + 1
    changed = text[:place] + change + text[place + removed :]
    # What begins like these is another command, whose errors are 1.13's or whose body is missing.
    return command._replace(text=(b"nosuch" if changed[:3] in NOT_MUTATED else changed) + b"\r\n")


NOT_MUTATED = {b"put", b"res", b"qui", b"pee"}
mutated = st.builds(
    mutate,
    st.one_of(on_jobs, on_tubes, reports, pauses),
    st.integers(0, 40),
    st.sampled_from([b"", b" ", b"x", b"0", b"-", b"\0", b"\n", b"\t", b"\xff", b"9" * 20]),
    st.integers(0, 1),
)
# Its blocks of 224 bytes make C beanstalkd overlook the ends of lines of 223 + 224 k characters.
long_lines = st.builds(
    lambda word, size: Command(word + b"{x*%d}\r\n" % (size - len(word)), may_be_cut=False),
    st.sampled_from([b"nosuch", b"stats ", b"use a\0", b"put 0 0 1 1 "]),
    st.integers(224, 900).filter(lambda size: size % 224 not in (222, 223)),
)
odd_lines = st.sampled_from(
    [
        b"",
        b" ",
        b"stats ",
        b"peek-readyx",
        b"kick -1",
        b"kick 4294967296",
        b"kick x",
        b"STATS",
        b"{x*222}",
        b"pause-tube",
        b"reserve-mode x",
        b"truncate-tube x",
        b"peek 0",
        b"peek x",
    ]
).map(lambda text: Command(text + b"\r\n"))

# How often a kind of command is chosen: most must meet jobs that are there.
WEIGHTS = {
    good_puts: 6,
    on_jobs: 6,
    reserves: 5,
    on_tubes: 3,
    looks: 2,
    reports: 2,
    pauses: 1,
    bad_endings: 1,
    bad_puts: 1,
    mutated: 1,
    long_lines: 1,
    odd_lines: 1,
}
commands = st.sampled_from(
    [kind for kind, weight in WEIGHTS.items() for _ in range(weight)]
).flatmap(lambda kind: kind)
names = st.sampled_from(NAMES)
single = st.builds(lambda name, command: Step(name, [command], []), names, commands)
pipelines = st.builds(
    lambda name, several, cuts, hold: Step(name, several, cuts, hold),
    names,
    st.lists(commands, min_size=1, max_size=6),
    st.lists(st.integers(0, 99), max_size=3),
    st.booleans(),
)
endings = st.builds(
    lambda name, ending: Step(name, [], [], ending=ending),
    names,
    st.sampled_from(["close", "half close", "quit"]),
)
steps = st.sampled_from([single] * 8 + [pipelines] * 3 + [endings]).flatmap(lambda kind: kind)


def routine(name: str, first: Command, then: list[Command]) -> list[Step]:
    """What clients mostly do, which chance alone rarely brings about: put, reserve, act on it."""
    job_in_hand = [command._replace(job=0) for command in then]
    steps_taken = [first, Command(AT_ONCE), *job_in_hand]
    return [Step(name, [command], []) for command in steps_taken]


acts = st.sampled_from([on_jobs, on_jobs, on_jobs, looks, on_tubes, reports]).flatmap(
    lambda kind: kind
)
routines = st.builds(routine, names, good_puts, st.lists(acts, min_size=1, max_size=4))
parts = st.sampled_from([st.lists(steps, max_size=12), routines]).flatmap(lambda kind: kind)
# Lists of lists are longer on average than lists, and lose what does not matter sooner.
scripts = st.lists(parts, min_size=1, max_size=12).map(
    lambda several: [step for part in several for step in part]
)


class Player:
    """Plays one script on a pair of servers and leaves them as empty as they were."""

    def __init__(self, pair: Pair, number: int, workers: int) -> None:
        self.pair = pair
        self.workers = workers
        self.tubes = {
            tube: name_on((number + place) % workers, workers, f"x{number}{tube[1]}")
            for place, tube in enumerate(OWN_TUBES)
        }
        self.jobs: list[int] = []
        self.watched: dict[str, set[bytes]] = {}
        self.unread: dict[str, int] = {}
        self.reserved: dict[str, list[int]] = {}
        self.awaited: dict[str, int] = {}
        self.held: dict[str, bytes] = {}
        self.leaving: set[str] = set()
        pair.transcript.clear()
        self.first = inserted_id(pair.ask_control(PUT_NOTHING))

    def play(self, script: list[Step]) -> None:
        """Play it all, then take away what is left of it."""
        for step in script:
            if self._is_usable(step.name):
                self._play_step(step)
        # Those who wait first: nobody is to be served by those who leave.
        for name in sorted(NAMES, key=lambda name: self.awaited.get(name, 0) <= 0):
            if name in self.pair.reference.clients:
                self._close(name)
        # Not all ids are known: a put may have been done behind a reserve that was given up.
        last = inserted_id(self.pair.ask_control(PUT_NOTHING))
        for command in (b"stats-job", b"peek", b"delete"):
            for job in range(self.first, last + 1):
                self.pair.ask_control(b"%b %d\r\n" % (command, job))
        assert self.pair.ask_control(b"list-tubes\r\n") == b"OK 14\r\n---\n- default\n\r\n"
        self.pair.ask_control(b"stats-tube default\r\n")
        self.pair.ask_control(b"stats\r\n")

    def _is_usable(self, name: str) -> bool:
        """Have a connection of that name, unless the old one is on its way out."""
        if self.pair.is_open(name):
            return name not in self.leaving
        if name in self.pair.reference.clients:
            self._take_in(self.pair.close(name))
        self.leaving.discard(name)
        self.held.pop(name, None)
        self.awaited[name] = 0
        self.unread[name] = 0
        self.reserved[name] = []
        self.watched[name] = {b"default"}
        self.pair.open(name)
        # The first tube that it names is with the worker that gets the connection.
        home = OWN_TUBES[NAMES.index(name)].encode()
        start = [b"use %b\r\n" % home, b"use {a}\r\n", b"watch {a}\r\n", b"watch {b}\r\n"]
        self._play_step(Step(name, [Command(text) for text in start], []))
        return True

    def _play_step(self, step: Step) -> None:
        if step.name in self.held:
            self._send(step.name, [self.held.pop(step.name)])
            if not self.pair.is_open(step.name):
                return
        if self.awaited[step.name] > 0 and (self.held or self.unread[step.name] >= MAX_UNREAD):
            return  # it would run amid what another client still holds back, or get stuck
        if step.ending and self._gives_back_at_several(step.name):
            return
        if step.ending == "close":
            self._close(step.name)
        elif step.ending == "half close":
            self.leaving.add(step.name)
            self._take_in(self.pair.half_close(step.name))
        elif step.ending == "quit":
            self.leaving.add(step.name)
            self._send(step.name, [b"quit\r\n"])
        else:
            self._send_commands(step)

    def _close(self, name: str) -> None:
        """Close the connection, and take in what that makes ready for others."""
        if self.awaited[name] > 1 and self.pair.is_open(name):
            # How much is done of what is queued depends on when the first reply fails to arrive.
            self._take_in(self.pair.half_close(name))
        self._take_in(self.pair.close(name))

    def _send_commands(self, step: Step) -> None:
        data = b""
        # What waits behind the reserve of another client runs as soon as that gets a job; so
        # nothing may be under way here that could come before or after it.
        backlog = any(self.awaited[other] > 1 for other in self._others_waiting(step.name))
        for command in step.commands[: 1 if backlog else None]:
            data += self._fill(step.name, command)
            self.awaited[step.name] += command.replies
            if command.text.startswith(b"pause-tube") and self._others_waiting(step.name):
                # A lifted pause serves its waiters a moment later, so nothing may follow at once.
                break
        cuts: list[int] = []
        if all(command.may_be_cut for command in step.commands):
            cuts = sorted({len(data) * cut // 100 for cut in step.cuts} - {0})
        ends = [*cuts, len(data)]
        pieces = [data[start:end] for start, end in itertools.pairwise([0, *ends])]
        if step.hold and len(pieces) > 1 and not backlog:
            self.held[step.name] = pieces.pop()
        self._send(step.name, pieces)

    def _send(self, name: str, pieces: list[bytes]) -> None:
        self.unread[name] += len(pieces)
        self._take_in(self.pair.send(name, pieces))

    def _fill(self, name: str, command: Command) -> bytes:
        text = command.text
        text = text.replace(b"{job}", b"%d" % self._choose_job(name, command.job))
        text = re.sub(rb"\{(\w)\*(\d+)\}", lambda run: run[1] * int(run[2]), text)
        for tube, real in self.tubes.items():
            text = text.replace(tube.encode(), real.encode())
        if text in BLOCKING and (self.held or self._somebody_waits_for(self.watched[name], name)):
            return AT_ONCE
        if text.startswith(b"watch "):
            self.watched[name].add(text[6:-2])
        return text

    def _choose_job(self, name: str, number: int) -> int:
        """One of the last jobs: by even numbers of those it has reserved, by odd ones of all."""
        chosen = self.jobs if number % 2 or not self.reserved[name] else self.reserved[name]
        if not chosen or number == UNLUCKY:
            return NO_JOB
        return chosen[-1 - (number // 2) % min(len(chosen), 3)]

    def _gives_back_at_several(self, name: str) -> bool:
        """Jobs for which another client waits, perhaps at several workers."""
        several = self.workers > 1 and len(self.reserved[name]) > 1
        return several and bool(self._others_waiting(name))

    def _others_waiting(self, name: str) -> set[str]:
        return {other for other, count in self.awaited.items() if count > 0 and other != name}

    def _somebody_waits_for(self, tubes: set[bytes], name: str) -> bool:
        """Perhaps: tubes that were ignored later are counted too."""
        return any(self.watched[other] & tubes for other in self._others_waiting(name))

    def _take_in(self, replies: dict[str, list[bytes]]) -> None:
        for name, received in replies.items():
            self.awaited[name] -= len(received)
            if self.awaited[name] <= 0:
                self.unread[name] = 0
            self.jobs += [inserted_id(it) for it in received if it.startswith(b"INSERTED ")]
            self.reserved[name] += [
                int(it.split()[1]) for it in received if it.startswith(b"RESERVED ")
            ]
        for name in NAMES:
            if not self.pair.is_open(name):
                self.awaited[name] = 0


def name_on(worker: int, workers: int, prefix: str) -> str:
    """The name of a tube of that worker: the prefix, with a number if need be."""
    names = itertools.chain([prefix], (f"{prefix}{number}" for number in itertools.count()))
    return next(name for name in names if shard_of(name.encode(), workers) == worker)


class Stage:
    """A pair of servers that is replaced when a script has failed on it."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._stack = ExitStack()
        self._pair: Pair | None = None
        self._numbers = itertools.count(1)
        self._failures: set[str] = set()
        self._end_of_shrinking = float("inf")

    def play(self, script: list[Step]) -> None:
        """Play a script; both servers must go the whole way together.

        Every failure costs two new servers, so the search for a shorter script is cut off: after
        that only scripts known to fail are played.
        """
        if time.monotonic() > self._end_of_shrinking and repr(script) not in self._failures:
            return
        if self._pair is None:
            self._pair = self._stack.enter_context(both("-z", str(MAX_SIZE), workers=self._workers))
        try:
            Player(self._pair, next(self._numbers), self._workers).play(script)
        except BaseException:
            if not self._failures:
                self._end_of_shrinking = time.monotonic() + SHRINKING_S
            self._failures.add(repr(script))
            self.close()
            raise

    def close(self) -> None:
        """Stop both servers."""
        self._pair = None
        self._stack.close()


@pytest.fixture(scope="module", params=[1, 2, 4], ids=lambda workers: f"workers-{workers}")
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """The servers that all examples share: ours with one worker or several."""
    made = Stage(request.param)
    yield made
    made.close()


@given(script=scripts)
def test_every_script_gets_the_same_replies(stage: Stage, script: list[Step]) -> None:
    stage.play(script)
