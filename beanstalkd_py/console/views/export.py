"""The jobs of a tube as lines of JSON, as `beanstalkd-py export` writes them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

from beanstalkd_py import errors
from beanstalkd_py.admin.connection import NOT_FOUND, Connection
from beanstalkd_py.admin.id_scan import READ_BATCH, read_jobs, scan
from beanstalkd_py.admin.job_record import Job
from beanstalkd_py.admin.statistics import DELAYED, RESERVED, tube_stats
from beanstalkd_py.console.target import Target
from beanstalkd_py.console.views.jobs import JobFilter, all_jobs, can_list


def exported(target: Target, tube: str) -> Iterator[bytes]:
    """Yield pieces with a line for each job that is not reserved, by id.

    Raises BeanstalkdError before the first piece: RefusedError if there is no such tube, or if the
    server cannot list jobs and a search by ids does not find all.
    """
    with target.connection() as connection:
        tube_stats(connection, tube)
        jobs = (_listed if can_list(connection, tube) else _searched)(connection, tube)
        while batch := list(itertools.islice(jobs, READ_BATCH)):
            yield b"".join(json.dumps(job.to_json()).encode() + b"\n" for job in batch)


def _listed(connection: Connection, tube: str) -> Iterator[Job]:
    free = (job for job in all_jobs(connection, JobFilter(tube)) if job.state != RESERVED)
    while batch := list(itertools.islice(free, READ_BATCH)):
        replies = connection.execute_all([b"peek %d" % job.id for job in batch])
        for job, reply in zip(batch, replies, strict=True):
            if reply is not NOT_FOUND:
                delay_s = job.time_left if job.state == DELAYED else 0
                yield Job(job.id, tube, job.state, job.pri, delay_s, job.ttr, reply.body)


def _searched(connection: Connection, tube: str) -> Iterator[Job]:
    found = scan(connection, tube)
    if not found.complete:
        raise errors.RefusedError(
            "INCOMPLETE",
            f"found {len(found.jobs)} of {found.expected} jobs of {tube}: the server cannot list"
            " them, and they change too fast or their ids are far apart; stop fast clients, or use"
            " beanstalkd-py export --reach",
        )
    yield from read_jobs(connection, found)
