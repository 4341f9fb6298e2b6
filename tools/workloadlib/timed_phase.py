"""A phase with jobs whose TTR or short delay runs out.

The time of such an event is unpredictable, so no consumer watches these tubes until it has
happened: otherwise random jobs would be reserved. Other tubes continue for a number of steps.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from .client_steps import put_into, watch
from .connection import When
from .job_commands import bury, delete, execute, release, reserve_job, touch
from .model import Job, Tube
from .run import Run
from .server_stats import await_jobs

SECOND_NS = 1_000_000_000
SHORT_S = 1
AT_A_TIME = 64
MOST_UNWATCHED = 5
LATE_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class Pending:
    """An expected event of a job, between two wall times in nanoseconds."""

    job: Job
    event: str
    earliest: int
    latest: int


class TimedPhase:
    def __init__(self, run: Run, rounds: int) -> None:
        """`rounds` is how often TTRs run out."""
        self._run = run
        self._rounds = rounds
        most = max(1, min(MOST_UNWATCHED, len(run.model.tubes) // 3))
        self._tubes = run.rng.sample(run.model.tubes, most)
        self._pending: list[Pending] = []
        self._short_ttr: list[Job] = []
        self._holder = run.connect(f"holder.{run.put}")

    def begin(self, count: int) -> None:
        """Put about `count` jobs into some tubes that are unwatched from now on."""
        for consumer in self._run.consumers:
            unwatched = [tube for tube in self._tubes if tube in consumer.tubes]
            commands = [b"ignore " + tube.wire for tube in unwatched]
            consumer.connection.expect(commands, [b"WATCHING "] * len(unwatched))
        for tube in self._tubes:
            tube.unwatched = True
        share = max(3, count // len(self._tubes))
        for tube in self._tubes:
            for start in range(0, share, AT_A_TIME):
                self._fill(tube, min(AT_A_TIME, share - start))

    def _fill(self, tube: Tube, count: int) -> None:
        """Make a third each: reserved jobs, delayed puts, delayed releases."""
        run = self._run
        producer = run.rng.choice(run.producers)
        short, later, released = [], [], []
        for index in range(min(count, run.remaining)):
            if index % 3 == 0:
                short.append(run.job(tube, ttr=SHORT_S))
            elif index % 3 == 1:
                later.append(run.job(tube, delay=SHORT_S + index % self._rounds))
            else:
                released.append(run.job(tube))
        if not short:
            return
        put_into(run, producer, tube, short + later + released)
        for job, _ in later:
            self._expect(job, "due", job.delay)
        self._short_ttr += [job for job, _ in short]
        self._hold([job for job, _ in short], touching=True)
        commands = []
        for job, _ in released:
            commands += [reserve_job(run.model, job), release(run.model, job, job.pri, SHORT_S)]
        execute(self._holder, commands)
        for job, _ in released:
            self._expect(job, "due", job.delay)

    def _expect(self, job: Job, event: str, seconds: int) -> None:
        length = seconds * SECOND_NS
        self._pending.append(
            Pending(job, event, job.when.sent_ns + length, job.when.at_ns + length)
        )

    def _hold(self, jobs: list[Job], touching: bool) -> None:
        model = self._run.model
        execute(self._holder, [reserve_job(model, job) for job in jobs])
        if touching:
            execute(self._holder, [touch(model, job) for job in jobs[::4]])
        for job in jobs:
            self._expect(job, "timeout", job.ttr)

    def end(self) -> None:
        """Wait for all events and watch the tubes again."""
        self._await_events()
        for _ in range(self._rounds - 1):
            self._hold(self._short_ttr, touching=False)
            self._await_events()
        self._end_short_ttr()
        self._holder.close()
        for tube in self._tubes:
            tube.unwatched = False
        for consumer in self._run.consumers:
            back = [tube for tube in self._tubes if tube in consumer.tubes]
            if back:
                watch(consumer.connection, back)

    def _await_events(self) -> None:
        """Wait for the pending events and log them in order."""
        pending, self._pending = self._pending, []
        last = max((each.latest for each in pending), default=0)
        time.sleep(max(0, last + LATE_NS - time.time_ns()) / SECOND_NS)
        wanted = [
            (each.job, "ready", each.job.timeouts + (each.event == "timeout")) for each in pending
        ]
        at_ns = await_jobs(self._run.operator, wanted, self._holder)
        model = self._run.model
        for each in pending:
            log = model.timeout if each.event == "timeout" else model.due
            log(each.job, When(each.earliest, at_ns, self._holder.name))

    def _end_short_ttr(self) -> None:
        """Delete or bury jobs with a short TTR, which no consumer can finish in time."""
        run, model = self._run, self._run.model
        commands = []
        for job in self._short_ttr:
            draw = run.rng.random()
            if draw < 0.3:
                commands += [delete(model, job)]
            elif draw < 0.6:
                commands += [reserve_job(model, job), delete(model, job)]
            else:
                commands += [reserve_job(model, job), bury(model, job, job.pri)]
        execute(run.operator, commands)
