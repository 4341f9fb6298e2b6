"""Putting exported jobs into a tube."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from beanstalkd_py import errors
from beanstalkd_py.admin.connection import Connection
from beanstalkd_py.admin.job_record import Job, read_line
from beanstalkd_py.admin.jobs import appear, inserted_copies
from beanstalkd_py.admin.staging import FAR_FUTURE_S
from beanstalkd_py.admin.statistics import BURIED, parse
from beanstalkd_py.plural import counted

AT_ONCE = 128
AT_ONCE_BYTES = 1 << 24


@dataclass
class Imported:
    """How far it came: jobs put, and the number of the last line that is done with."""

    put: int = 0
    line: int = 0


def import_lines(
    connection: Connection,
    tube: str,
    lines: Iterable[bytes],
    skip: int,
    imported: Imported,
    held: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
) -> None:
    """Puts the job of each line, in order, after `skip` lines; `imported` says how far it came.

    A buried job is put with a delay of a century and buried then, so that nobody gets it in
    between. Each batch is put and counted inside `held()`. Raises ToolUsageError for a wrong line
    and RefusedError for a refused job; all lines before that one are done, and no later one is.
    """
    server = parse(connection.ask_one(b"stats").expect(b"OK").body)
    most_bytes = int(server["max-job-size"])
    imported.line = skip
    rest = itertools.islice(enumerate(lines, 1), skip, None)
    for batch in _batches(rest, most_bytes):
        with held():
            _put_batch(connection, tube, batch.jobs, imported)
        if batch.mistake is not None:
            raise batch.mistake


@dataclass
class _Batch:
    """Lines that are right, by number, and the error of the line that ended it."""

    jobs: list[tuple[int, Job]]
    mistake: errors.BeanstalkdError | None = None


def _batches(lines: Iterable[tuple[int, bytes]], most_bytes: int) -> Iterator[_Batch]:
    batch = _Batch([])
    size = 0
    for number, line in lines:
        if not line.strip():
            continue
        try:
            job = read_line(line)
            if len(job.body) > most_bytes:
                length = counted(len(job.body), "byte")
                text = f"the body has {length}, and the server takes {most_bytes}"
                raise errors.RefusedError("JOB_TOO_BIG", f"{text} (JOB_TOO_BIG)")
        except (errors.ToolUsageError, errors.RefusedError) as error:
            error.args = (f"line {number}: {error}",)
            yield _Batch(batch.jobs, error)
            return
        batch.jobs.append((number, job))
        size += len(job.body)
        if len(batch.jobs) == AT_ONCE or size > AT_ONCE_BYTES:
            yield batch
            batch, size = _Batch([]), 0
    yield batch


def _put_batch(
    connection: Connection, tube: str, batch: list[tuple[int, Job]], imported: Imported
) -> None:
    jobs = [job for _, job in batch]
    delays_s = [FAR_FUTURE_S if job.state == BURIED else job.delay_s for job in jobs]
    outcomes = inserted_copies(connection, tube, jobs, delays_s)
    refusal: tuple[int, errors.RefusedError] | None = None
    done: list[tuple[int, Job]] = []
    for (number, job), outcome in zip(batch, outcomes, strict=True):
        if isinstance(outcome, errors.RefusedError):
            refusal = refusal or (number, outcome)
        elif refusal is None:
            done.append((outcome, job))
            imported.line = number
        else:
            # Put after one that was refused: it must not be put again when the user goes on there.
            connection.ask_one(b"delete %d" % outcome)
    appear(connection, [(copy, job) for copy, job in done if job.state == BURIED])
    imported.put += len(done)
    if refusal is not None:
        raise errors.RefusedError(refusal[1].word, f"line {refusal[0]}: {refusal[1]}")
