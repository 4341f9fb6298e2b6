"""The jobs of a tube that match a filter, for operations on all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import gevent

from beanstalkd_py import errors
from beanstalkd_py.admin.connection import Connection
from beanstalkd_py.admin.statistics import FREE_STATES, tube_stats
from beanstalkd_py.client.records import ListedJob
from beanstalkd_py.console.operations.operation import (
    Arguments,
    Plan,
    Progress,
    number_of,
    tube_of,
)
from beanstalkd_py.console.target import Target
from beanstalkd_py.console.views.jobs import ANY, JobFilter, can_list, job_pages
from beanstalkd_py.plural import counted
from beanstalkd_py.quantities import UINT32_MAX

Change = Callable[[Connection, Sequence[int]], list[str]]
"""Changes the jobs with these ids; returns the first word of the reply for each."""

BATCH_JOBS = 100
CONDITIONS = ("state", "min_age", "max_age", "min_pri", "max_pri", "body")
LONGEST_BODY = 1000
SHOWN_BODY = 40
COUNTED_S = 2.0
"""A dry run counts for this time: to read the bodies of a million jobs takes half a minute."""


def has_filter(arguments: Arguments) -> bool:
    """Raises ToolUsageError if there are other arguments, too."""
    if "filter" in arguments and len(arguments) > 1:
        other = min(arguments.keys() - {"filter"})
        raise errors.ToolUsageError(f"give a filter or {other}, not both")
    return "filter" in arguments


def _filter_of(arguments: Arguments) -> JobFilter:
    values = arguments["filter"]
    if not isinstance(values, dict):
        raise errors.ToolUsageError("filter: give an object with a tube")
    if unknown := values.keys() - {"tube", *CONDITIONS}:
        raise errors.ToolUsageError(f"filter has no {min(unknown)!r}")
    state, body = values.get("state", ANY), values.get("body", "")
    if state not in (ANY, *FREE_STATES):
        allowed = ", ".join((ANY, *FREE_STATES))
        raise errors.ToolUsageError(f"state is {state!r}; use one of {allowed}")
    if not isinstance(body, str) or len(body) > LONGEST_BODY:
        raise errors.ToolUsageError(f"body: give a text of up to {LONGEST_BODY} characters")

    def most(name: str) -> int | None:
        return None if name not in values else number_of(values, name, 0, UINT32_MAX, None)

    return JobFilter(
        *(tube_of(values), state),
        *(number_of(values, "min_age", 0, UINT32_MAX, 0), most("max_age")),
        *(number_of(values, "min_pri", 0, UINT32_MAX, 0), most("max_pri")),
        body,
    )


def _jobs(wanted: JobFilter, count: int) -> str:
    """Return words for this number of jobs, with the conditions."""
    everything, given = JobFilter(wanted.tube), []
    for name in CONDITIONS:
        if (value := getattr(wanted, name)) != getattr(everything, name):
            given.append(f"{name} {value[:SHOWN_BODY]!r}" if name == "body" else f"{name} {value}")
    text = f"{counted(count, 'job')} of {wanted.tube}"
    return f"{text} that match {', '.join(given)}" if given else text


def plan_matching(target: Target, arguments: Arguments, verb: str, states: Sequence[str]) -> Plan:
    """Count the jobs in some of `states` that match, for COUNTED_S. Raises BeanstalkdError."""
    wanted, end_mono = _filter_of(arguments), time.monotonic() + COUNTED_S
    with target.connection() as connection:
        stats = tube_stats(connection, wanted.tube)
        pages = _pages(connection, wanted)
        if wanted == JobFilter(wanted.tube, wanted.state):
            possible = [state for state in states if wanted.state in (ANY, state)]
            count = sum(getattr(stats, state) for state in possible)
            return Plan(count, f"{verb} {_jobs(wanted, count)}")
        count, is_late = 0, False
        for page in pages:
            count += sum(job.state in states for job in page)
            if is_late:
                return Plan(None, f"{verb} at least {_jobs(wanted, count)}")
            is_late = time.monotonic() >= end_mono
    return Plan(count, f"{verb} {_jobs(wanted, count)}")


def change_matching(
    target: Target,
    arguments: Arguments,
    progress: Progress,
    change: Change,
    word: str,
    states: Sequence[str],
    text: str,
) -> str:
    """Change the jobs in some of `states` that match; return what was done.

    `word` begins the replies for jobs that were changed. Raises BeanstalkdError.
    """
    wanted, changed = _filter_of(arguments), 0
    with target.connection() as connection:
        for ids in _batches(_pages(connection, wanted), states):
            if progress.is_stopped:
                break
            done = change(connection, ids).count(word)
            changed += done
            progress.add(done)
            gevent.sleep(0)
    return f"{text} {_jobs(wanted, changed)}"


def _batches(pages: Iterable[list[ListedJob]], states: Sequence[str]) -> Iterator[list[int]]:
    """Yield the ids of jobs in some of `states`; an empty batch for a page without them."""
    for page in pages:
        ids = [job.id for job in page if job.state in states]
        for begin in range(0, max(len(ids), 1), BATCH_JOBS):
            yield ids[begin : begin + BATCH_JOBS]


def _pages(connection: Connection, wanted: JobFilter) -> Iterator[list[ListedJob]]:
    if not can_list(connection, wanted.tube):
        raise errors.ToolUsageError(
            f"this server cannot list the jobs of {wanted.tube}; choose jobs by their ids"
        )
    return job_pages(connection, wanted, time.monotonic())
