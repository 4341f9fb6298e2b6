"""Put exported jobs into a tube."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from beanstalkd_py import errors
from beanstalkd_py.admin.connection import Connection
from beanstalkd_py.admin.job_record import Job, parse_job
from beanstalkd_py.admin.jobs import put_copies, reveal
from beanstalkd_py.admin.staging import FAR_FUTURE_S
from beanstalkd_py.admin.statistics import BURIED, DELAYED, job_stats, max_job_size
from beanstalkd_py.plural import counted

BATCH_JOBS = 128
BATCH_BYTES = 1 << 24


@dataclass
class ImportResult:
    """Number of jobs put, and number of the last line that was processed."""

    put: int = 0
    line: int = 0


def import_lines(
    connection: Connection,
    tube: str,
    lines: Iterable[bytes],
    skip: int,
    result: ImportResult,
    deferred: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
) -> None:
    """Put the job of each line after the first `skip` lines, in order; update `result`.

    A buried job is put with a delay of a century and then buried, so that no client can reserve it
    in between. Each batch is put and counted inside `deferred()`. Raises ToolUsageError for an
    invalid line and RefusedError for a refused job; only the jobs of earlier lines are put then.
    """
    max_bytes = max_job_size(connection)
    result.line = skip
    rest = itertools.islice(enumerate(lines, 1), skip, None)
    for batch in _batches(rest, max_bytes):
        with deferred():
            _put_batch(connection, tube, batch, result)


def _batches(lines: Iterable[tuple[int, bytes]], max_bytes: int) -> Iterator[list[tuple[int, Job]]]:
    """Yield jobs with the numbers of their lines; raise after the jobs before an invalid line."""
    batch: list[tuple[int, Job]] = []
    size = 0
    for number, line in lines:
        if not line.strip():
            continue
        try:
            job = parse_job(line)
            if len(job.body) > max_bytes:
                length = counted(len(job.body), "byte")
                text = f"body of {length} exceeds the server's max-job-size of {max_bytes}"
                raise errors.RefusedError("JOB_TOO_BIG", f"{text} (JOB_TOO_BIG)")
        except (errors.ToolUsageError, errors.RefusedError) as error:
            error.args = (f"line {number}: {error}",)
            yield batch
            raise
        batch.append((number, job))
        size += len(job.body)
        if len(batch) == BATCH_JOBS or size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    yield batch


def _staged(connection: Connection, copies: Sequence[tuple[int, Job]]) -> Sequence[tuple[int, Job]]:
    """Return the copies without jobs that were there before: a tube with unique bodies has both."""
    found = job_stats(connection, [copy for copy, _ in copies])
    return [
        (copy, job)
        for (copy, job), stats in zip(copies, found, strict=True)
        if stats is not None and (stats.state, stats.pri) == (DELAYED, job.pri)
    ]


def _put_batch(
    connection: Connection, tube: str, batch: list[tuple[int, Job]], result: ImportResult
) -> None:
    jobs = [job for _, job in batch]
    delays_s = [FAR_FUTURE_S if job.state == BURIED else job.delay_s for job in jobs]
    outcomes = put_copies(connection, tube, jobs, delays_s)
    refusal: tuple[int, errors.RefusedError] | None = None
    copies: list[tuple[int, Job]] = []
    for (number, job), outcome in zip(batch, outcomes, strict=True):
        if isinstance(outcome, errors.RefusedError):
            refusal = refusal or (number, outcome)
        elif refusal is None:
            copies.append((outcome, job))
            result.line = number
        else:
            # The user will continue at the refused line, which would put later jobs a second time.
            connection.execute(b"delete %d" % outcome)
    reveal(connection, _staged(connection, [pair for pair in copies if pair[1].state == BURIED]))
    result.put += len(copies)
    if refusal is not None:
        raise errors.RefusedError(refusal[1].word, f"line {refusal[0]}: {refusal[1]}")
