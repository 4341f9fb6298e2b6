"""A step of an operator: kicks, pauses, looks, and jobs taken by their ids."""

from __future__ import annotations

import time
from itertools import islice

from . import ContradictionError
from .consuming import MOST_RELEASES
from .orders import Order, bury, delete, give, kick_job, release, reserve_job
from .run import Run
from .world import Job, Tube

KICK_MOST = 50
AMONG = 50
PAUSE_S = 3600


def operate(run: Run) -> None:
    """One thing in one tube."""
    tube = run.pick_tube()
    run.rng.choice((kick, kick, kick_one, pause, peek, take, remove))(run, tube)


def kick(run: Run, tube: Tube) -> None:
    """The first buried jobs; a job with a short TTR stays buried, and all behind it."""
    jobs: list[Job] = []
    for job in islice(tube.buried.values(), run.rng.randint(1, KICK_MOST)):
        if job.brief:
            break
        jobs.append(job)
    if not jobs:
        return
    commands = [b"use " + tube.wire, b"kick %d" % len(jobs)]
    sent_ns, replies = run.operator.expect(commands, [b"USING ", b"KICKED %d" % len(jobs)])
    for job in jobs:
        run.world.kick(job, sent_ns, replies[1].at_ns, run.operator.name)


def _choice(run: Run, tube: Tube) -> Job | None:
    jobs = [
        job
        for state in (tube.buried, tube.delayed)
        for job in islice(state.values(), AMONG)
        if not job.brief
    ]
    return run.rng.choice(jobs) if jobs else None


def kick_one(run: Run, tube: Tube) -> None:
    """By its id."""
    job = _choice(run, tube)
    if job is not None:
        give(run.operator, [kick_job(run.world, job)])


def pause(run: Run, tube: Tube) -> None:
    """Nobody gets a job of it, then it goes on."""
    name = tube.wire
    commands = [
        *(b"watch " + name, b"pause-tube %b %d" % (name, PAUSE_S)),
        *(b"reserve-with-timeout 0", b"pause-tube %b 0" % name, b"ignore " + name),
    ]
    words = [b"WATCHING ", b"PAUSED", b"TIMED_OUT", b"PAUSED", b"WATCHING "]
    run.operator.expect(commands, words)
    run.paused += 1
    _, replies = run.operator.ask([b"stats-tube " + name])
    end = time.monotonic() + 1
    while b"pause-time-left: 0" not in replies[0].body:
        if time.monotonic() > end:
            raise ContradictionError(f"tube {tube.name} is still paused")
        _, replies = run.operator.ask([b"stats-tube " + name])


def peek(run: Run, tube: Tube) -> None:
    """What is next in each state."""
    states = (tube.ready, len(tube.delayed), len(tube.buried))
    words = [b"FOUND " if count else b"NOT_FOUND" for count in states]
    commands = [b"use " + tube.wire, b"peek-ready", b"peek-delayed", b"peek-buried"]
    _, replies = run.operator.expect(commands, [b"USING ", *words])
    if tube.buried and replies[3].job_id() != next(iter(tube.buried)):
        raise ContradictionError(f"the first buried job of {tube.name} is another")


def take(run: Run, tube: Tube) -> None:
    """A buried or delayed job by its id, and what becomes of it."""
    job = _choice(run, tube)
    if job is None:
        return
    world, draw = run.world, run.rng.random()
    then: Order = delete(world, job)
    if draw < 0.4 and job.releases < MOST_RELEASES:
        then = release(world, job, job.pri, run.long_delay() if draw < 0.2 else 0)
    elif draw < 0.7:
        then = bury(world, job, job.pri)
    give(run.operator, [reserve_job(world, job), then])


def remove(run: Run, tube: Tube) -> None:
    """A job that nobody holds."""
    job = _choice(run, tube)
    if tube.ready and (job is None or run.rng.random() < 0.5):
        commands = [b"use " + tube.wire, b"peek-ready"]
        _, replies = run.operator.expect(commands, [b"USING ", b"FOUND "])
        job = run.world.jobs[replies[1].job_id()]
    if job is not None:
        give(run.operator, [delete(run.world, job)])
