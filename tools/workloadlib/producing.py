"""A step of a producer: jobs put into tubes, some with a delay."""

from __future__ import annotations

from .run import MOST_BYTES, MOST_COMMANDS, Producer, Run
from .world import Job, Tube

RUN_MOST = 16
"""Jobs for one tube, one after another."""


def produce(run: Run, producer: Producer, count: int) -> None:
    """So many jobs, in as many batches as they need."""
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
    """Jobs that are made already."""
    batch: list[tuple[Job | Tube, bytes]] = []
    if producer.used is not tube:
        producer.used = tube
        batch.append((tube, b"use " + tube.wire))
    send(run, producer, [*batch, *jobs])


def send(run: Run, producer: Producer, batch: list[tuple[Job | Tube, bytes]]) -> None:
    """Puts and uses."""
    connection = producer.connection
    words = [b"INSERTED " if isinstance(what, Job) else b"USING " for what, _ in batch]
    sent_ns, replies = connection.expect([command for _, command in batch], words)
    for (what, _), reply in zip(batch, replies, strict=True):
        if isinstance(what, Job):
            what.id = reply.job_id()
            run.world.put(what, sent_ns, reply.at_ns, connection.name)
