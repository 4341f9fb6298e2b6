"""Steps of producers, which put jobs, and of consumers, which reserve and finish them."""

from __future__ import annotations

import time

from . import ContradictionError
from .bodies import POISON
from .connection import Connection, Reply, When
from .job_commands import JobCommand, bury, delete, execute, release, touch
from .model import Job, Tube, sha_of
from .run import MOST_BYTES, MOST_COMMANDS, Consumer, Producer, Run
from .server_stats import await_jobs

WAIT_S = 30
MOST_RELEASES = 5
MOST_HELD = 5


def reserve(run: Run, consumer: Consumer, count: int) -> list[Job]:
    """Reserve jobs that have to be ready."""
    connection = consumer.connection
    commands = [
        b"reserve" if run.rng.random() < 0.2 else b"reserve-with-timeout %d" % WAIT_S
        for _ in range(count)
    ]
    replies = connection.expect(commands, [b"RESERVED "] * count)
    jobs = []
    for reply in replies:
        job = _recognised(run, consumer, reply)
        run.model.reserve(job, reply.when)
        jobs.append(job)
    return jobs


def _recognised(run: Run, consumer: Consumer, reply: Reply) -> Job:
    number = reply.job_id()
    job = run.model.jobs.get(number)
    if job is None or job.tube not in consumer.tubes or job.tube.unwatched:
        raise ContradictionError(f"{consumer.name} got job {number}, which it cannot get")
    if sha_of(reply.body) != job.sha:
        raise ContradictionError(f"{consumer.name} got job {number} with another body")
    return job


def consume(run: Run, consumer: Consumer, count: int) -> None:
    """Reserve up to `count` jobs; some may be left to a connection that is then closed."""
    rng, profile = run.rng, run.settings.profile
    count = min(count, consumer.available, MOST_COMMANDS)
    if count <= 0:
        return
    jobs = reserve(run, consumer, count)
    run.pause(rng.lognormvariate(0.0, 1.0) * profile.work_s)
    held: list[Job] = []
    if rng.random() < profile.disconnect:
        split = max(0, len(jobs) - rng.randint(1, MOST_HELD))
        jobs, held = jobs[:split], jobs[split:]
    commands: list[JobCommand] = []
    for job in jobs:
        commands += _next_commands(run, job)
    execute(consumer.connection, commands)
    if held:
        disconnect(run, consumer, held)


def _next_commands(run: Run, job: Job) -> list[JobCommand]:
    rng, profile, model = run.rng, run.settings.profile, run.model
    draw = rng.random()
    if job.kind in POISON or draw < job.tube.bury:
        return [bury(model, job, job.pri if draw < 0.5 else rng.randrange(1024, 200_000))]
    draw = rng.random()
    again = job.releases < MOST_RELEASES
    if again and draw < profile.release:
        return [release(model, job, rng.randrange(1024, 200_000), 0)]
    if again and draw < profile.release + profile.release_later:
        return [release(model, job, job.pri, run.long_delay())]
    if rng.random() < profile.touch:
        return [touch(model, job), delete(model, job)]
    return [delete(model, job)]


def disconnect(run: Run, consumer: Consumer, held: list[Job]) -> None:
    """Close the connection while it holds jobs, and open another one."""
    closed_ns = time.time_ns()
    name = consumer.connection.name
    consumer.connection.close()
    at_ns = await_jobs(run.operator, [(job, "ready", job.timeouts) for job in held])
    for job in held:
        run.model.give_back(job, When(closed_ns, at_ns, name))
    consumer.connections += 1
    consumer.connection = run.connect(f"{consumer.name}.{consumer.connections}")
    watch(consumer.connection, [tube for tube in consumer.tubes if not tube.unwatched])


def watch(connection: Connection, tubes: list[Tube]) -> None:
    for start in range(0, len(tubes), MOST_COMMANDS):
        commands = [b"watch " + tube.wire for tube in tubes[start : start + MOST_COMMANDS]]
        connection.expect(commands, [b"WATCHING "] * len(commands))


RUN_MOST = 16
"""Limit of consecutive jobs for one tube."""


def produce(run: Run, producer: Producer, count: int) -> None:
    """Put jobs in as many batches as needed."""
    rng, profile = run.rng, run.settings.profile
    while count > 0 and run.remaining > 0:
        batch: list[tuple[Job | Tube, bytes]] = []
        size = 0
        while count > 0 and run.remaining > 0 and len(batch) < MOST_COMMANDS and size < MOST_BYTES:
            tube = run.pick_tube()
            if producer.used is not tube:
                producer.used = tube
                batch.append((tube, b"use " + tube.wire))
            for _ in range(min(count, rng.randint(1, RUN_MOST))):
                if run.remaining <= 0:
                    break
                delay = run.long_delay() if rng.random() < profile.delayed else 0
                job, command = run.job(tube, delay)
                batch.append((job, command))
                size += len(command)
                count -= 1
        send(run, producer, batch)


def put_into(run: Run, producer: Producer, tube: Tube, jobs: list[tuple[Job, bytes]]) -> None:
    """Put prepared jobs into one tube."""
    batch: list[tuple[Job | Tube, bytes]] = []
    if producer.used is not tube:
        producer.used = tube
        batch.append((tube, b"use " + tube.wire))
    send(run, producer, [*batch, *jobs])


def send(run: Run, producer: Producer, batch: list[tuple[Job | Tube, bytes]]) -> None:
    connection = producer.connection
    words = [b"INSERTED " if isinstance(what, Job) else b"USING " for what, _ in batch]
    replies = connection.expect([command for _, command in batch], words)
    for (what, _), reply in zip(batch, replies, strict=True):
        if isinstance(what, Job):
            what.id = reply.job_id()
            run.model.put(what, reply.when)
