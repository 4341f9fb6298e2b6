"""A while in which some tubes are away: jobs whose TTR runs out, and jobs with short delays.

When such a time is over cannot be said in advance, so no consumer watches these tubes until it is:
else the next reserve would get one job or another by chance. All other tubes go on meanwhile, for a
number of steps and not for a time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from .consuming import watch
from .looking import await_jobs
from .orders import bury, delete, give, release, reserve_job, touch
from .producing import put_into
from .run import Run
from .world import Job, Tube

SECOND_NS = 1_000_000_000
SHORT_S = 1
AT_A_TIME = 64
MOST_AWAY = 5
LATE_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class Pending:
    """What is to happen to a job: not before, and surely after (wall nanoseconds)."""

    job: Job
    event: str
    not_before: int
    surely: int


class Timed:
    """One while, from `begin` to `end`."""

    def __init__(self, run: Run, rounds: int) -> None:
        """`rounds` is how often TTRs run out."""
        self._run = run
        self._rounds = rounds
        most = max(1, min(MOST_AWAY, len(run.world.tubes) // 3))
        self._tubes = run.rng.sample(run.world.tubes, most)
        self._pending: list[Pending] = []
        self._brief: list[Job] = []
        self._holder = run.connect(f"holder.{run.put}")

    def begin(self, count: int) -> None:
        """Some tubes go away; about `count` jobs are put into them."""
        for consumer in self._run.consumers:
            away = [tube for tube in self._tubes if tube in consumer.tubes]
            commands = [b"ignore " + tube.wire for tube in away]
            consumer.connection.expect(commands, [b"WATCHING "] * len(away))
        for tube in self._tubes:
            tube.away = True
        share = max(3, count // len(self._tubes))
        for tube in self._tubes:
            for start in range(0, share, AT_A_TIME):
                self._fill(tube, min(AT_A_TIME, share - start))

    def _fill(self, tube: Tube, count: int) -> None:
        """A third each: held until the TTR is over; put with a delay; released with one."""
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
        self._brief += [job for job, _ in short]
        self._hold([job for job, _ in short], touching=True)
        orders = []
        for job, _ in released:
            orders += [reserve_job(run.world, job), release(run.world, job, job.pri, SHORT_S)]
        give(self._holder, orders)
        for job, _ in released:
            self._expect(job, "due", job.delay)

    def _expect(self, job: Job, event: str, seconds: int) -> None:
        """So long after the last command about it."""
        length = seconds * SECOND_NS
        self._pending.append(Pending(job, event, job.sent_ns + length, job.at_ns + length))

    def _hold(self, jobs: list[Job], touching: bool) -> None:
        world = self._run.world
        give(self._holder, [reserve_job(world, job) for job in jobs])
        if touching:
            give(self._holder, [touch(world, job) for job in jobs[::4]])
        for job in jobs:
            self._expect(job, "timeout", job.ttr)

    def end(self) -> None:
        """Waits until all of it has happened; the tubes come back."""
        self._happen()
        for _ in range(self._rounds - 1):
            self._hold(self._brief, touching=False)
            self._happen()
        self._settle()
        self._holder.close()
        for tube in self._tubes:
            tube.away = False
        for consumer in self._run.consumers:
            back = [tube for tube in self._tubes if tube in consumer.tubes]
            if back:
                watch(consumer.connection, back)

    def _happen(self) -> None:
        """What is pending, in its order, once the server shows that all of it has happened."""
        pending, self._pending = self._pending, []
        last = max((each.surely for each in pending), default=0)
        time.sleep(max(0, last + LATE_NS - time.time_ns()) / SECOND_NS)
        wanted = [
            (each.job, "ready", each.job.timeouts + (each.event == "timeout")) for each in pending
        ]
        at_ns = await_jobs(self._run.operator, wanted, self._holder)
        world = self._run.world
        for each in pending:
            note = world.timeout if each.event == "timeout" else world.due
            note(each.job, each.not_before, at_ns, self._holder.name)

    def _settle(self) -> None:
        """Jobs with a short TTR end or are buried: no consumer is surely in time for them."""
        run, world = self._run, self._run.world
        orders = []
        for job in self._brief:
            draw = run.rng.random()
            if draw < 0.3:
                orders += [delete(world, job)]
            elif draw < 0.6:
                orders += [reserve_job(world, job), delete(world, job)]
            else:
                orders += [reserve_job(world, job), bury(world, job, job.pri)]
        give(run.operator, orders)
