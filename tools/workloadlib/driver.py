"""A run from the first connection to the last line of the log."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from . import WorkloadError
from .bodies import Bodies
from .client_steps import consume, produce, watch
from .connection import Connection
from .event_log import LogWriter
from .model import Model, Tube
from .operator_steps import operate
from .profiles import Settings
from .run import MOST_COMMANDS, Consumer, Producer, Run, make_tubes, zipf
from .run_end import Truncate, contradictions, drain, leave_jobs, totals, truncate
from .server_stats import Stats, parse_stats, tubes_stats
from .timed_phase import TimedPhase

TIMED_STEPS = 40
"""Steps of other tubes during a timed phase."""
TIMED_STEP_FOR = 100
MORE_STEPS = 1000
"""Limit of additional steps, one for TIMED_STEP_FOR jobs."""
TIMED_AT_ONCE = 1000
"""Jobs of a timed phase."""
LEAST_IN_STEP = 8
STEPS = 50
OTHER_TUBES = 2
"""Tubes that a consumer watches besides its share."""


@dataclass(frozen=True)
class RunResult:
    jobs: int
    events: int
    entry_bytes: int
    seconds: float
    wrong: list[str]


@dataclass(frozen=True)
class Target:
    """The server. `alone`: started for this run; `after_batch` is called after each batch."""

    host: str
    port: int
    alone: bool
    truncate: Truncate
    after_batch: Callable[[], None]


def drive(
    settings: Settings, target: Target, connections: list[Connection], log: LogWriter
) -> RunResult:
    """Run the workload. Raises ContradictionError, WorkloadError.

    The caller closes `connections`, which hold their jobs until then.
    """

    def connect(name: str) -> Connection:
        connections.append(Connection(target.host, target.port, name, target.after_batch))
        return connections[-1]

    begun = time.monotonic()
    run, before = _prepared(settings, connect, log)
    _Driver(run).go()
    seconds = time.monotonic() - begun
    truncate(run, target.truncate)
    leave_jobs(run)
    wrong = contradictions(run, before, target.alone)
    log.end({**totals(run), "wrong": wrong})
    return RunResult(run.put, log.events, run.model.entry_bytes, seconds, wrong)


def _prepared(
    settings: Settings, connect: Callable[[str], Connection], log: LogWriter
) -> tuple[Run, Stats]:
    rng = random.Random(settings.seed)
    tubes = make_tubes(settings.tubes, settings.profile.bury)
    watcher = connect("watcher")
    watch(watcher, tubes)  # keeps the tubes and their counters
    run = Run(
        settings,
        rng,
        Model(tubes, log),
        Bodies(rng, settings.max_job_size),
        connect,
        connect("operator"),
        weights=zipf(len(tubes)),
    )
    _reject_used(run, watcher)
    run.producers = [Producer(connect(f"producer-{i}")) for i in range(settings.producers)]
    for index in range(settings.consumers):
        name = f"consumer-{index}"
        consumer = Consumer(name, connect(name), _watched(run, index))
        watch(consumer.connection, consumer.tubes)
        run.consumers.append(consumer)
    replies = run.operator.expect([b"stats"], [b"OK "])
    return run, parse_stats(replies[0].body)


def _reject_used(run: Run, watcher: Connection) -> None:
    tubes = run.model.tubes
    for tube, stats in zip(tubes, tubes_stats(watcher, tubes), strict=True):
        if stats["total-jobs"] != "0" or stats["current-watching"] != "1":
            raise WorkloadError(f"tube {tube.name} is in use on this server; give another server")


def _watched(run: Run, index: int) -> list[Tube]:
    tubes, consumers = run.model.tubes, run.settings.consumers
    own = [tube for number, tube in enumerate(tubes) if number % consumers == index]
    more = run.rng.sample(tubes, min(OTHER_TUBES, len(tubes)))
    return own + [tube for tube in more if tube not in own]


class _Driver:
    """Chooses the next step."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._timed: TimedPhase | None = None
        self._steps_left = 0
        self._phases = 0
        self._timed_jobs = 0
        profile = run.settings.profile
        # A small run has steps of all kinds, too.
        self._backlog = min(profile.backlog, max(1, run.remaining // 4))
        self._most = max(LEAST_IN_STEP, min(MOST_COMMANDS, run.remaining // STEPS))

    def go(self) -> None:
        """Put all jobs and finish most of them."""
        run = self._run
        while run.remaining > 0:
            self._step()
        self._end_timed()
        drain(run)

    def _step(self) -> None:
        run, profile = self._run, self._run.settings.profile
        if self._timed is not None:
            self._steps_left -= 1
            if self._steps_left <= 0 or all(tube.unwatched for tube in run.model.tubes):
                self._end_timed()
                return
        elif self._timed_is_due():
            self._begin_timed()
            return
        run.pause(run.rng.expovariate(1.0) * profile.quiet_s)
        if run.rng.random() < profile.operator:
            operate(run)
            return
        share = 1 - run.model.ready / (2 * self._backlog)
        if run.rng.random() < max(0.05, min(0.95, share)) or not run.model.ready:
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
        self._phases += 1
        self._timed = TimedPhase(run, rounds=2 if self._phases % 3 == 0 else 1)
        whole = run.remaining + run.put
        count = min(TIMED_AT_ONCE, int(profile.timed * whole), run.remaining)
        self._timed.begin(count)
        self._timed_jobs += max(run.put - before, count)
        self._steps_left = TIMED_STEPS + min(MORE_STEPS, whole // TIMED_STEP_FOR)

    def _end_timed(self) -> None:
        if self._timed is not None:
            self._timed.end()
            self._timed = None
