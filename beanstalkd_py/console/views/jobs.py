"""Jobs of a tube, filtered here so that a page has only what it shows, and one job."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from beanstalkd_py import errors
from beanstalkd_py.admin.connection import NOT_FOUND, Connection
from beanstalkd_py.admin.job_scan import first_job, jobs_in_window
from beanstalkd_py.admin.statistics import (
    BURIED,
    FREE_STATES,
    Statistics,
    features_of,
    parse,
    tube_stats,
)
from beanstalkd_py.admin.tube_survey import RateTracker, open_surveyor
from beanstalkd_py.client.records import ListedJob
from beanstalkd_py.client.replies import listed_job
from beanstalkd_py.console.target import TIMEOUT_S, Target
from beanstalkd_py.console.views.bodies import Body, shape_of

ANY = "any"
"""All states, as list-jobs names them."""
PAGE_ROWS = 1000
BUDGET_S = 0.15
"""A filtered page ends after this time, even if it has fewer jobs than asked for."""
BODY_ROWS = 100
LONGEST_LISTED = 224 - len(f"list-jobs  reserved {2**64} {PAGE_ROWS}\r\n")
"""Characters of a tube's name with which each list-jobs fits into a line."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list. Ages are seconds; `body` is text in the body."""

    tube: str
    state: str = ANY
    min_age: int = 0
    max_age: int | None = None
    min_pri: int = 0
    max_pri: int | None = None
    body: str = ""

    def matches(self, job: ListedJob, ago_s: int = 0) -> bool:
        """Return whether a job matched so long ago. Those that were put later do not."""
        age_s = job.age - ago_s
        return (
            age_s >= self.min_age
            and (self.max_age is None or age_s <= self.max_age)
            and job.pri >= self.min_pri
            and (self.max_pri is None or job.pri <= self.max_pri)
        )


@dataclass(frozen=True, slots=True)
class JobList:
    """Jobs by id. `next` is where the next page begins, 0 at the end.

    Not `exact`: the server cannot list jobs, or not of a tube with such a long name, and these are
    near the first ones of each state.
    """

    jobs: Sequence[ListedJob]
    next: int
    exact: bool = True


@dataclass(frozen=True, slots=True)
class JobView:
    stats: Statistics
    body: Body | None


def can_list(connection: Connection, tube: str) -> bool:
    """Return whether the server lists the jobs of this tube."""
    return len(tube) <= LONGEST_LISTED and "list-jobs" in features_of(connection)


def list_jobs(target: Target, wanted: JobFilter, after: int, limit: int) -> JobList:
    """Return a page of jobs. Raises BeanstalkdError."""
    with target.connection() as connection:
        if not can_list(connection, wanted.tube):
            found = [job for job in _near_the_heads(connection, wanted) if job.id > after]
            return JobList(_filtered(connection, wanted, found)[:limit], 0, False)
        end_mono = time.monotonic() + BUDGET_S
        jobs: list[ListedJob] = []
        while True:
            # No more than still fit, because a page ends after a whole reply.
            rows = PAGE_ROWS if wanted.body else min(PAGE_ROWS, max(limit - len(jobs), 100))
            page, following = _page(connection, wanted, after, rows)
            matching = _filtered(connection, wanted, page)
            if len(jobs) + len(matching) > limit:
                jobs += matching[: limit - len(jobs)]
                return JobList(jobs, jobs[-1].id)
            jobs += matching
            if following == 0 or len(jobs) == limit or time.monotonic() >= end_mono:
                return JobList(jobs, following)
            after = following


def all_jobs(connection: Connection, wanted: JobFilter) -> Iterator[ListedJob]:
    """Yield all jobs that match; those near the heads if the server cannot list jobs."""
    if can_list(connection, wanted.tube):
        yield from itertools.chain.from_iterable(job_pages(connection, wanted))
    else:
        yield from _filtered(connection, wanted, _near_the_heads(connection, wanted))


def job_pages(
    connection: Connection, wanted: JobFilter, begun_mono: float | None = None
) -> Iterator[list[ListedJob]]:
    """Yield the jobs that match, of PAGE_ROWS jobs at a time; a page may be empty.

    Ages count up to `begun_mono`, None for now. Those that were put a second later are left out.
    """
    after = 0
    while True:
        ago_s = 0 if begun_mono is None else int(time.monotonic() - begun_mono)
        page, after = _page(connection, wanted, after, PAGE_ROWS)
        yield _filtered(connection, wanted, page, ago_s)
        if after == 0:
            return


def _page(
    connection: Connection, wanted: JobFilter, after: int, rows: int
) -> tuple[list[ListedJob], int]:
    line = f"list-jobs {wanted.tube} {wanted.state} {after} {rows}".encode()
    _, *lines, last = connection.execute(line).expect(b"OK").body.decode().splitlines()
    found = [listed_job(text) for text in lines if text.startswith("- ")]
    return found, int(last.removeprefix("next: "))


def _near_the_heads(connection: Connection, wanted: JobFilter) -> list[ListedJob]:
    states = FREE_STATES if wanted.state == ANY else (wanted.state,)
    ids: set[int] = set()
    for state in states:
        if state in FREE_STATES:
            first = first_job(connection, wanted.tube, state)
            if first is not None:
                ids |= {job.id for job in jobs_in_window(connection, wanted.tube, first)}
    ordered = sorted(ids)
    replies = connection.execute_all([b"stats-job %d" % job for job in ordered])
    bodies = connection.execute_all([b"peek %d" % job for job in ordered])
    found = []
    for reply, body in zip(replies, bodies, strict=True):
        if reply is NOT_FOUND or body is NOT_FOUND:
            continue
        stats = parse(reply.body)
        if wanted.state in (ANY, stats["state"]):
            found.append(_listed(stats, len(body.body)))
    return found


_COUNTS = (
    "id",
    "pri",
    "age",
    "delay",
    "ttr",
    "reserves",
    "timeouts",
    "releases",
    "buries",
    "kicks",
)


def _listed(stats: Statistics, size: int) -> ListedJob:
    numbers = {name: int(stats[name]) for name in _COUNTS}
    return ListedJob(state=stats["state"], time_left=int(stats["time-left"]), bytes=size, **numbers)


def _filtered(
    connection: Connection, wanted: JobFilter, jobs: Sequence[ListedJob], ago_s: int = 0
) -> list[ListedJob]:
    matching = [job for job in jobs if wanted.matches(job, ago_s)]
    if not wanted.body:
        return matching
    text, found = wanted.body.encode(), []
    for begin in range(0, len(matching), BODY_ROWS):
        some = matching[begin : begin + BODY_ROWS]
        replies = connection.execute_all([b"peek %d" % job.id for job in some])
        found += [job for job, reply in zip(some, replies, strict=True) if text in reply.body]
    return found


def one_job(target: Target, job: int) -> JobView:
    """Return a job. Raises RefusedError if there is none."""
    with target.connection() as connection:
        stats, peeked = connection.execute_all([b"stats-job %d" % job, b"peek %d" % job])
    if stats is NOT_FOUND:
        raise errors.RefusedError("NOT_FOUND", f"there is no job {job}")
    body = None if peeked is NOT_FOUND else Body.of(peeked.body)
    return JobView(parse(stats.expect(b"OK").body), body)


@dataclass(slots=True)
class DeadLetters:
    """Buried jobs of a tube whose bodies have the same shape."""

    shape: str
    count: int = 0
    ids: list[int] = field(default_factory=list)
    example: Body | None = None
    oldest_s: int = 0


@dataclass(frozen=True, slots=True)
class BuriedTube:
    tube: str
    buried: int


@dataclass(frozen=True, slots=True)
class DeadLetterGroups:
    """`scanned` of `total` buried jobs, the others are not in the groups."""

    tubes: Sequence[BuriedTube]
    groups: Sequence[DeadLetters]
    scanned: int
    total: int


SCANNED_JOBS = 8_000
"""In about 0.2 s."""
GROUP_IDS = 20
EXAMPLE_BYTES = 4096


def dead_letters(target: Target, tube: str, shape: str | None = None) -> DeadLetterGroups:
    """Group the first SCANNED_JOBS buried jobs of a tube; or all, with all ids of one shape."""
    groups: dict[str, DeadLetters] = {}
    scanned = 0
    with target.connection() as connection:
        total = tube_stats(connection, tube).buried
        batch: list[ListedJob] = []

        def take() -> None:
            replies = connection.execute_all([b"peek %d" % job.id for job in batch])
            for job, reply in zip(batch, replies, strict=True):
                if reply is NOT_FOUND:
                    continue
                found = shape_of(reply.body)
                group = groups.setdefault(found, DeadLetters(found))
                group.count += 1
                group.oldest_s = max(group.oldest_s, job.age)
                if len(group.ids) < GROUP_IDS or shape == found:
                    group.ids.append(job.id)
                group.example = group.example or Body.of(reply.body, EXAMPLE_BYTES)
            batch.clear()

        for job in all_jobs(connection, JobFilter(tube, BURIED)):
            batch.append(job)
            scanned += 1
            if len(batch) == BODY_ROWS:
                take()
            if shape is None and scanned == SCANNED_JOBS:
                break
        take()
    found = sorted(groups.values(), key=lambda group: -group.count)
    return DeadLetterGroups([BuriedTube(tube, total)], found, scanned, total)


def buried_tubes(target: Target) -> DeadLetterGroups:
    """Return the tubes with buried jobs, those with the most first, without groups."""
    opening = open_surveyor(target.address, TIMEOUT_S, target.control, target.tls_options)
    with opening as surveyor:
        rows = next(surveyor.surveys(RateTracker())).tubes
    found = sorted((row for row in rows if row.buried), key=lambda row: (-row.buried, row.tube))
    tubes = [BuriedTube(row.tube, row.buried) for row in found]
    return DeadLetterGroups(tubes, [], 0, sum(row.buried for row in found))
