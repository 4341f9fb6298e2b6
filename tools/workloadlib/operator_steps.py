"""Steps of an operator: kicks, pauses, peeks, and commands for jobs by id."""

from __future__ import annotations

import time
from itertools import islice

from . import ContradictionError
from .client_steps import MOST_RELEASES
from .job_commands import JobCommand, bury, delete, execute, kick_job, release, reserve_job
from .model import Job, Tube
from .run import Run

KICK_MOST = 50
AMONG = 50
PAUSE_S = 3600


def operate(run: Run) -> None:
    tube = run.pick_tube()
    run.rng.choice((kick, kick, kick_one, pause, peek, take, remove))(run, tube)


def kick(run: Run, tube: Tube) -> None:
    """Kick the first buried jobs, up to one with a short TTR."""
    jobs: list[Job] = []
    for job in islice(tube.buried.values(), run.rng.randint(1, KICK_MOST)):
        if job.short_ttr:
            break
        jobs.append(job)
    if not jobs:
        return
    commands = [b"use " + tube.wire, b"kick %d" % len(jobs)]
    replies = run.operator.expect(commands, [b"USING ", b"KICKED %d" % len(jobs)])
    for job in jobs:
        run.model.kick(job, replies[1].when)


def _choice(run: Run, tube: Tube) -> Job | None:
    jobs = [
        job
        for state in (tube.buried, tube.delayed)
        for job in islice(state.values(), AMONG)
        if not job.short_ttr
    ]
    return run.rng.choice(jobs) if jobs else None


def kick_one(run: Run, tube: Tube) -> None:
    job = _choice(run, tube)
    if job is not None:
        execute(run.operator, [kick_job(run.model, job)])


def pause(run: Run, tube: Tube) -> None:
    """Pause a tube, check that no job is reserved, and resume it."""
    name = tube.wire
    commands = [
        *(b"watch " + name, b"pause-tube %b %d" % (name, PAUSE_S)),
        *(b"reserve-with-timeout 0", b"pause-tube %b 0" % name, b"ignore " + name),
    ]
    words = [b"WATCHING ", b"PAUSED", b"TIMED_OUT", b"PAUSED", b"WATCHING "]
    run.operator.expect(commands, words)
    run.paused += 1
    replies = run.operator.ask([b"stats-tube " + name])
    end = time.monotonic() + 1
    while b"pause-time-left: 0" not in replies[0].body:
        if time.monotonic() > end:
            raise ContradictionError(f"tube {tube.name} is still paused")
        replies = run.operator.ask([b"stats-tube " + name])


def peek(run: Run, tube: Tube) -> None:
    states = (tube.ready, len(tube.delayed), len(tube.buried))
    words = [b"FOUND " if count else b"NOT_FOUND" for count in states]
    commands = [b"use " + tube.wire, b"peek-ready", b"peek-delayed", b"peek-buried"]
    replies = run.operator.expect(commands, [b"USING ", *words])
    if tube.buried and replies[3].job_id() != next(iter(tube.buried)):
        raise ContradictionError(f"the first buried job of {tube.name} is another")


def take(run: Run, tube: Tube) -> None:
    job = _choice(run, tube)
    if job is None:
        return
    model, draw = run.model, run.rng.random()
    then: JobCommand = delete(model, job)
    if draw < 0.4 and job.releases < MOST_RELEASES:
        then = release(model, job, job.pri, run.long_delay() if draw < 0.2 else 0)
    elif draw < 0.7:
        then = bury(model, job, job.pri)
    execute(run.operator, [reserve_job(model, job), then])


def remove(run: Run, tube: Tube) -> None:
    job = _choice(run, tube)
    if tube.ready and (job is None or run.rng.random() < 0.5):
        commands = [b"use " + tube.wire, b"peek-ready"]
        replies = run.operator.expect(commands, [b"USING ", b"FOUND "])
        job = run.model.jobs[replies[1].job_id()]
    if job is not None:
        execute(run.operator, [delete(run.model, job)])
