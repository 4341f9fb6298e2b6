"""The jobs of a tube as lines of JSON, as `beanstalkd-py export` writes them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

import gevent

from beanstalkd_py import errors
from beanstalkd_py.admin.connection import NOT_FOUND, Connection
from beanstalkd_py.admin.id_scan import scan
from beanstalkd_py.admin.job_record import Job
from beanstalkd_py.admin.statistics import (
    DELAYED,
    FREE_STATES,
    RESERVED,
    max_job_size,
    tube_stats,
)
from beanstalkd_py.console.target import Target
from beanstalkd_py.console.views.jobs import JobFilter, all_jobs, can_list

REACH = 100_000
"""Ids without a job after which a search ends; the command searches further."""
BATCH_BYTES = 1 << 20
"""Bytes of bodies that are read at once."""
BATCH_JOBS = 64


def export_lines(target: Target, tube: str) -> Generator[bytes, None, None]:
    """Yield pieces with a line for each job that is not reserved, by id.

    Raises BeanstalkdError before the first piece: RefusedError if there is no such tube, or if the
    server cannot list jobs and a search by ids does not find all.
    """
    with target.connection() as connection:
        tube_stats(connection, tube)
        find = _list if can_list(connection, tube) else _search
        free = find(connection, tube)
        size = min(BATCH_JOBS, max(1, BATCH_BYTES // max_job_size(connection)))
        while batch := list(itertools.islice(free, size)):
            for job in _with_bodies(connection, batch):
                yield json.dumps(job.to_json()).encode() + b"\n"
            gevent.sleep(0)


def _list(connection: Connection, tube: str) -> Iterator[Job]:
    for job in all_jobs(connection, JobFilter(tube)):
        if job.state != RESERVED:
            delay_s = job.time_left if job.state == DELAYED else 0
            yield Job(job.id, tube, job.state, job.pri, delay_s, job.ttr, b"")


def _search(connection: Connection, tube: str) -> Iterator[Job]:
    found = scan(connection, tube, REACH)
    if not found.complete:
        raise errors.RefusedError(
            "INCOMPLETE",
            f"found {len(found.jobs)} of {found.expected} jobs of {tube}: the server cannot list"
            " them, and they change too fast or their ids are far apart; stop fast clients, or use"
            " beanstalkd-py export --reach",
        )
    for _, job in sorted(found.jobs.items()):
        if job.state in FREE_STATES:
            yield Job.of(job, b"")


def _with_bodies(connection: Connection, jobs: Sequence[Job]) -> Iterator[Job]:
    """Yield the jobs that still exist."""
    replies = connection.execute_all([b"peek %d" % job.id for job in jobs])
    for job, reply in zip(jobs, replies, strict=True):
        if reply is not NOT_FOUND:
            yield replace(job, body=reply.body)
