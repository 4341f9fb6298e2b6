"""The end of a run: jobs left in every state, and the stats of the server against the model."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

from . import ContradictionError
from .client_steps import consume, reserve
from .connection import When
from .job_commands import bury, execute, release
from .model import Job, Tube
from .run import MOST_COMMANDS, Run
from .server_stats import Stats, jobs_stats, parse_stats, tubes_stats

LEAST_READY = 8
OF_EACH = 3
STATES = ("ready", "reserved", "delayed", "buried")
COUNTERS = ("reserves", "timeouts", "releases", "buries", "kicks")
MOST_REPORTED = 20

Truncate = Callable[[Tube], int]


def drain(run: Run) -> None:
    """Consume until only the jobs to be left are ready."""
    left = max(LEAST_READY, int(run.put * run.settings.profile.left))
    while (rest := run.model.ready - left) > 0:
        consumers = [each for each in run.consumers if each.available]
        consume(run, run.rng.choice(consumers), min(rest, MOST_COMMANDS))


def truncate(run: Run, do: Truncate) -> None:
    """Truncate some of the smallest tubes with jobs."""
    tubes = sorted((tube for tube in run.model.tubes if tube.jobs), key=lambda tube: tube.jobs)
    for tube in tubes[: run.settings.truncate]:
        when = truncate_timed(do, tube)
        for job in [job for job in run.model.jobs.values() if job.tube is tube]:
            run.model.truncate(job, when)


def truncate_timed(do: Truncate, tube: Tube) -> When:
    """Truncate a tube by the control socket."""
    expected, sent_ns = tube.jobs, time.time_ns()
    done = do(tube)
    if done != expected:
        text = f"{done} jobs of {tube.name} were truncated, and {expected} were there"
        raise ContradictionError(text)
    return When(sent_ns, time.time_ns(), "control")


def leave_jobs(run: Run) -> None:
    """Leave a few jobs in each state; reserved ones are held until the server stops."""
    for consumer in run.consumers:
        jobs = reserve(run, consumer, min(OF_EACH * 3, consumer.available // 2))
        commands = []
        for index, job in enumerate(jobs):
            if index % 3 == 1:
                commands.append(bury(run.model, job, job.pri))
            elif index % 3 == 2:
                commands.append(release(run.model, job, job.pri, run.long_delay()))
        execute(consumer.connection, commands)


def totals(run: Run) -> dict[str, object]:
    """Return the last line of the log."""
    events: Counter[str] = Counter()
    for counted in run.model.by_tube.values():
        events.update(counted)
    return {
        "entry_bytes": run.model.entry_bytes,
        "by_event": dict(sorted(events.items())),
        "by_tube": {name: dict(sorted(c.items())) for name, c in run.model.by_tube.items()},
        "left": {tube.name: left_in(tube) for tube in run.model.tubes},
    }


def left_in(tube: Tube) -> dict[str, int]:
    counts = (tube.ready, tube.reserved, len(tube.delayed), len(tube.buried))
    return dict(zip(STATES, counts, strict=True))


def contradictions(run: Run, before: Stats, alone: bool) -> list[str]:
    """Compare the stats of the server with the model.

    `before` are its stats at the start; `alone` is a server of this package.
    """
    found = list(_of_jobs(run))
    tubes = run.model.tubes
    for tube, stats in zip(tubes, tubes_stats(run.operator, tubes), strict=True):
        found += _of_tube(tube, stats)
    if alone:
        found += _of_server(run, before)
    return found[:MOST_REPORTED]


def _differences(what: str, expected: dict[str, str], stats: Stats) -> Iterator[str]:
    for key, value in expected.items():
        if stats.get(key) != value:
            yield f"{what}: {key} is {stats.get(key, 'missing')} at the server, {value} in the log"


def _of_jobs(run: Run) -> Iterator[str]:
    jobs = list(run.model.jobs.values())
    found = jobs_stats(run.operator, jobs)
    for job, stats in zip(jobs, found, strict=True):
        yield from _differences(f"job {job.id}", _stats_of(job), stats)


def _stats_of(job: Job) -> dict[str, str]:
    stats = {"tube": job.tube.name, "state": job.state}
    numbers = ("pri", "delay", "ttr", *COUNTERS)
    return stats | {name: str(getattr(job, name)) for name in numbers}


def _of_tube(tube: Tube, stats: Stats) -> Iterator[str]:
    expected = {f"current-jobs-{state}": str(count) for state, count in left_in(tube).items()}
    expected |= {"total-jobs": str(tube.put), "cmd-delete": str(tube.deleted)}
    yield from _differences(f"tube {tube.name}", expected, stats)


def _of_server(run: Run, before: Stats) -> Iterator[str]:
    replies = run.operator.expect([b"stats"], [b"OK "])
    after = parse_stats(replies[0].body)
    events: Counter[str] = Counter()
    for counted in run.model.by_tube.values():
        events.update(counted)
    moved = {
        **{f"cmd-{name}": events[name] for name in ("put", "delete", "release", "bury", "touch")},
        "total-jobs": events["put"],
        "job-timeouts": events["timeout"],
        "cmd-pause-tube": 2 * run.paused,
    }
    expected = {key: str(int(before[key]) + count) for key, count in moved.items()}
    for state in STATES:
        count = sum(left_in(tube)[state] for tube in run.model.tubes)
        expected[f"current-jobs-{state}"] = str(count)
    yield from _differences("server", expected, after)
