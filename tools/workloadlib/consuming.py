"""A step of a consumer: it reserves jobs, works for a while, and says what becomes of each."""

from __future__ import annotations

import time

from . import ContradictionError
from .bodies import POISON
from .connection import Connection, Reply
from .looking import await_jobs
from .orders import Order, bury, delete, give, release, touch
from .run import MOST_COMMANDS, Consumer, Run
from .world import Job, Tube, sha_of

WAIT_S = 30
MOST_RELEASES = 5
MOST_HELD = 5


def reserve(run: Run, consumer: Consumer, count: int) -> list[Job]:
    """So many jobs, which have to be there."""
    connection = consumer.connection
    commands = [
        b"reserve" if run.rng.random() < 0.2 else b"reserve-with-timeout %d" % WAIT_S
        for _ in range(count)
    ]
    sent_ns, replies = connection.expect(commands, [b"RESERVED "] * count)
    jobs = []
    for reply in replies:
        job = _recognised(run, consumer, reply)
        run.world.reserve(job, sent_ns, reply.at_ns, connection.name)
        jobs.append(job)
    return jobs


def _recognised(run: Run, consumer: Consumer, reply: Reply) -> Job:
    number = reply.job_id()
    job = run.world.jobs.get(number)
    if job is None or job.tube not in consumer.tubes or job.tube.away:
        raise ContradictionError(f"{consumer.name} got job {number}, which it cannot get")
    if sha_of(reply.body) != job.sha:
        raise ContradictionError(f"{consumer.name} got job {number} with another body")
    return job


def consume(run: Run, consumer: Consumer, count: int) -> None:
    """At most as many jobs as there are; some may be left to a connection that is then closed."""
    rng, profile = run.rng, run.settings.profile
    count = min(count, consumer.available, MOST_COMMANDS)
    if count <= 0:
        return
    jobs = reserve(run, consumer, count)
    run.rest(rng.lognormvariate(0.0, 1.0) * profile.work_s)
    held: list[Job] = []
    if rng.random() < profile.disconnect:
        split = max(0, len(jobs) - rng.randint(1, MOST_HELD))
        jobs, held = jobs[:split], jobs[split:]
    orders: list[Order] = []
    for job in jobs:
        orders += _fate(run, job)
    give(consumer.connection, orders)
    if held:
        disconnect(run, consumer, held)


def _fate(run: Run, job: Job) -> list[Order]:
    rng, profile, world = run.rng, run.settings.profile, run.world
    draw = rng.random()
    if job.kind in POISON or draw < job.tube.bury:
        return [bury(world, job, job.pri if draw < 0.5 else rng.randrange(1024, 200_000))]
    draw = rng.random()
    again = job.releases < MOST_RELEASES
    if again and draw < profile.release:
        return [release(world, job, rng.randrange(1024, 200_000), 0)]
    if again and draw < profile.release + profile.release_later:
        return [release(world, job, job.pri, run.long_delay())]
    if rng.random() < profile.touch:
        return [touch(world, job), delete(world, job)]
    return [delete(world, job)]


def disconnect(run: Run, consumer: Consumer, held: list[Job]) -> None:
    """The connection is closed while it holds these jobs; the consumer comes back with another."""
    closed_ns = time.time_ns()
    name = consumer.connection.name
    consumer.connection.close()
    at_ns = await_jobs(run.operator, [(job, "ready", job.timeouts) for job in held])
    for job in held:
        run.world.give_back(job, closed_ns, at_ns, name)
    consumer.lives += 1
    consumer.connection = run.connect(f"{consumer.name}.{consumer.lives}")
    watch(consumer.connection, [tube for tube in consumer.tubes if not tube.away])


def watch(connection: Connection, tubes: list[Tube]) -> None:
    """From now on its reserves are about these, too."""
    for start in range(0, len(tubes), MOST_COMMANDS):
        commands = [b"watch " + tube.wire for tube in tubes[start : start + MOST_COMMANDS]]
        connection.expect(commands, [b"WATCHING "] * len(commands))
