"""A run from the first connection to the last line of the log."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from . import WorkloadError
from .bodies import Bodies
from .connection import Connection
from .consuming import consume, watch
from .ending import Truncate, contradictions, leave_some, totals, truncate, work_off
from .log import LogWriter
from .looking import Facts, facts_of, tubes_facts
from .operating import operate
from .producing import produce
from .run import MOST_COMMANDS, Consumer, Producer, Run, make_tubes, zipf
from .settings import Settings
from .timed import Timed
from .world import Tube, World

TIMED_STEPS = 40
"""Other steps while some tubes are away."""
TIMED_STEP_FOR = 100
MORE_STEPS = 1000
"""And one more for so many jobs, at most so many, so that a large run does not wait."""
TIMED_AT_ONCE = 1000
"""Jobs."""
LEAST_IN_STEP = 8
STEPS = 50
OTHER_TUBES = 2
"""Besides its share of tubes a consumer watches so many."""


@dataclass(frozen=True)
class Driven:
    """How it went."""

    jobs: int
    events: int
    entry_bytes: int
    seconds: float
    wrong: list[str]


@dataclass(frozen=True)
class Target:
    """The server. `alone`: it was started for this run; `look` is called after each batch."""

    host: str
    port: int
    alone: bool
    truncate: Truncate
    look: Callable[[], None]


def drive(
    settings: Settings, target: Target, connections: list[Connection], log: LogWriter
) -> Driven:
    """Raises ContradictionError as soon as a reply cannot be, and WorkloadError.

    `connections` gets what it opens, for the caller to close: until then they hold their jobs.
    """

    def connect(name: str) -> Connection:
        connections.append(Connection(target.host, target.port, name, target.look))
        return connections[-1]

    begun = time.monotonic()
    run, before = _prepared(settings, connect, log)
    _Driver(run).go()
    seconds = time.monotonic() - begun
    truncate(run, target.truncate)
    leave_some(run)
    wrong = contradictions(run, before, target.alone)
    log.end({**totals(run), "wrong": wrong})
    return Driven(run.put, log.events, run.world.entry_bytes, seconds, wrong)


def _prepared(
    settings: Settings, connect: Callable[[str], Connection], log: LogWriter
) -> tuple[Run, Facts]:
    rng = random.Random(settings.seed)
    tubes = make_tubes(settings.tubes, settings.profile.bury)
    keeper = connect("keeper")
    watch(keeper, tubes)  # a tube that nobody needs would forget what it has counted
    run = Run(
        settings,
        rng,
        World(tubes, log),
        Bodies(rng, settings.max_job_size),
        connect,
        connect("operator"),
        weights=zipf(len(tubes)),
    )
    _refuse_used(run, keeper)
    run.producers = [Producer(connect(f"producer-{i}")) for i in range(settings.producers)]
    for index in range(settings.consumers):
        name = f"consumer-{index}"
        consumer = Consumer(name, connect(name), _watched(run, index))
        watch(consumer.connection, consumer.tubes)
        run.consumers.append(consumer)
    _, replies = run.operator.expect([b"stats"], [b"OK "])
    return run, facts_of(replies[0].body)


def _refuse_used(run: Run, keeper: Connection) -> None:
    tubes = run.world.tubes
    for tube, facts in zip(tubes, tubes_facts(keeper, tubes), strict=True):
        if facts["total-jobs"] != "0" or facts["current-watching"] != "1":
            raise WorkloadError(f"tube {tube.name} is in use on this server; give another server")


def _watched(run: Run, index: int) -> list[Tube]:
    tubes, consumers = run.world.tubes, run.settings.consumers
    own = [tube for number, tube in enumerate(tubes) if number % consumers == index]
    more = run.rng.sample(tubes, min(OTHER_TUBES, len(tubes)))
    return own + [tube for tube in more if tube not in own]


class _Driver:
    """Which step comes next."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._timed: Timed | None = None
        self._steps_left = 0
        self._whiles = 0
        self._timed_jobs = 0
        profile = run.settings.profile
        # A small run has steps of all sorts, too.
        self._backlog = min(profile.backlog, max(1, run.remaining // 4))
        self._most = max(LEAST_IN_STEP, min(MOST_COMMANDS, run.remaining // STEPS))

    def go(self) -> None:
        """Until all jobs are put and most are worked off."""
        run = self._run
        while run.remaining > 0:
            self._step()
        self._end_timed()
        work_off(run)

    def _step(self) -> None:
        run, profile = self._run, self._run.settings.profile
        if self._timed is not None:
            self._steps_left -= 1
            if self._steps_left <= 0 or all(tube.away for tube in run.world.tubes):
                self._end_timed()
                return
        elif self._timed_is_due():
            self._begin_timed()
            return
        run.rest(run.rng.expovariate(1.0) * profile.quiet_s)
        if run.rng.random() < profile.operator:
            operate(run)
            return
        share = 1 - run.world.ready / (2 * self._backlog)
        if run.rng.random() < max(0.05, min(0.95, share)) or not run.world.ready:
            burst = run.rng.random() < profile.burst
            count = run.rng.randint(profile.put_least, profile.put_most)
            count = profile.burst_jobs if burst else min(count, self._most)
            produce(run, run.rng.choice(run.producers), count)
        else:
            consumer = run.rng.choice(run.consumers)
            consume(run, consumer, run.rng.randint(1, self._most))

    def _timed_is_due(self) -> bool:
        profile = self._run.settings.profile
        wanted = min(profile.timed_most, profile.timed * self._run.put)
        return self._run.put > 0 and self._timed_jobs < wanted

    def _begin_timed(self) -> None:
        run, profile = self._run, self._run.settings.profile
        before = run.put
        self._whiles += 1
        self._timed = Timed(run, rounds=2 if self._whiles % 3 == 0 else 1)
        whole = run.remaining + run.put
        count = min(TIMED_AT_ONCE, int(profile.timed * whole), run.remaining)
        self._timed.begin(count)
        self._timed_jobs += max(run.put - before, count)
        self._steps_left = TIMED_STEPS + min(MORE_STEPS, whole // TIMED_STEP_FOR)

    def _end_timed(self) -> None:
        if self._timed is not None:
            self._timed.end()
            self._timed = None
