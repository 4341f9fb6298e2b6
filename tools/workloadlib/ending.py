"""The end of a run: jobs in every state, and the server's own figures against the log."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

from . import ContradictionError
from .consuming import consume, reserve
from .looking import Facts, facts_of, jobs_facts, tubes_facts
from .orders import bury, give, release
from .run import MOST_COMMANDS, Run
from .world import Job, Tube

LEAST_READY = 8
OF_EACH = 3
STATES = ("ready", "reserved", "delayed", "buried")
COUNTERS = ("reserves", "timeouts", "releases", "buries", "kicks")
MOST_TOLD = 20

Truncate = Callable[[Tube], int]


def work_off(run: Run) -> None:
    """Consumers go on until as many jobs are ready as are to be left."""
    left = max(LEAST_READY, int(run.put * run.settings.profile.left))
    while (rest := run.world.ready - left) > 0:
        consumers = [each for each in run.consumers if each.available]
        consume(run, run.rng.choice(consumers), min(rest, MOST_COMMANDS))


def truncate(run: Run, do: Truncate) -> None:
    """Some of the smallest tubes that have jobs are emptied by an operator."""
    tubes = sorted((tube for tube in run.world.tubes if tube.jobs), key=lambda tube: tube.jobs)
    for tube in tubes[: run.settings.truncate]:
        sent_ns, at_ns = do_timed(do, tube)
        for job in [job for job in run.world.jobs.values() if job.tube is tube]:
            run.world.truncate(job, sent_ns, at_ns, "control")


def do_timed(do: Truncate, tube: Tube) -> tuple[int, int]:
    """When it began and when it was done, wall nanoseconds."""
    expected, sent_ns = tube.jobs, time.time_ns()
    done = do(tube)
    if done != expected:
        text = f"{done} jobs of {tube.name} were truncated, and {expected} were there"
        raise ContradictionError(text)
    return sent_ns, time.time_ns()


def leave_some(run: Run) -> None:
    """A few jobs of each state; those that are reserved are held until the server stops."""
    for consumer in run.consumers:
        jobs = reserve(run, consumer, min(OF_EACH * 3, consumer.available // 2))
        orders = []
        for index, job in enumerate(jobs):
            if index % 3 == 1:
                orders.append(bury(run.world, job, job.pri))
            elif index % 3 == 2:
                orders.append(release(run.world, job, job.pri, run.long_delay()))
        give(consumer.connection, orders)


def totals(run: Run) -> dict[str, object]:
    """For the last line of the log."""
    events: Counter[str] = Counter()
    for counted in run.world.by_tube.values():
        events.update(counted)
    return {
        "entry_bytes": run.world.entry_bytes,
        "by_event": dict(sorted(events.items())),
        "by_tube": {name: dict(sorted(c.items())) for name, c in run.world.by_tube.items()},
        "left": {tube.name: left_in(tube) for tube in run.world.tubes},
    }


def left_in(tube: Tube) -> dict[str, int]:
    """Its jobs by state."""
    counts = (tube.ready, tube.reserved, len(tube.delayed), len(tube.buried))
    return dict(zip(STATES, counts, strict=True))


def contradictions(run: Run, before: Facts, alone: bool) -> list[str]:
    """What the server says otherwise; `before`: its stats at the start; `alone`: our server."""
    found = list(_of_jobs(run))
    tubes = run.world.tubes
    for tube, facts in zip(tubes, tubes_facts(run.operator, tubes), strict=True):
        found += _of_tube(tube, facts)
    if alone:
        found += _of_server(run, before)
    return found[:MOST_TOLD]


def _differences(what: str, expected: dict[str, str], facts: Facts) -> Iterator[str]:
    for key, value in expected.items():
        if facts.get(key) != value:
            yield f"{what}: {key} is {facts.get(key, 'missing')} at the server, {value} in the log"


def _of_jobs(run: Run) -> Iterator[str]:
    jobs = list(run.world.jobs.values())
    _, found = jobs_facts(run.operator, jobs)
    for job, facts in zip(jobs, found, strict=True):
        yield from _differences(f"job {job.id}", _said_of(job), facts)


def _said_of(job: Job) -> dict[str, str]:
    said = {"tube": job.tube.name, "state": job.state}
    numbers = ("pri", "delay", "ttr", *COUNTERS)
    return said | {name: str(getattr(job, name)) for name in numbers}


def _of_tube(tube: Tube, facts: Facts) -> Iterator[str]:
    expected = {f"current-jobs-{state}": str(count) for state, count in left_in(tube).items()}
    expected |= {"total-jobs": str(tube.put), "cmd-delete": str(tube.deleted)}
    yield from _differences(f"tube {tube.name}", expected, facts)


def _of_server(run: Run, before: Facts) -> Iterator[str]:
    _, replies = run.operator.expect([b"stats"], [b"OK "])
    after = facts_of(replies[0].body)
    events: Counter[str] = Counter()
    for counted in run.world.by_tube.values():
        events.update(counted)
    moved = {
        **{f"cmd-{name}": events[name] for name in ("put", "delete", "release", "bury", "touch")},
        "total-jobs": events["put"],
        "job-timeouts": events["timeout"],
        "cmd-pause-tube": 2 * run.paused,
    }
    expected = {key: str(int(before[key]) + count) for key, count in moved.items()}
    for state in STATES:
        count = sum(left_in(tube)[state] for tube in run.world.tubes)
        expected[f"current-jobs-{state}"] = str(count)
    yield from _differences("server", expected, after)
