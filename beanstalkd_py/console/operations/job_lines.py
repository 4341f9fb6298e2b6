"""The import of jobs from lines of JSON, as `beanstalkd-py import` reads them."""

from __future__ import annotations

from collections.abc import Iterator

import gevent

from beanstalkd_py import errors
from beanstalkd_py.admin.import_jobs import ImportResult, import_lines
from beanstalkd_py.admin.job_record import parse_job
from beanstalkd_py.console.operations.operation import (
    Arguments,
    Plan,
    Progress,
    number_of,
    tube_of,
)
from beanstalkd_py.console.target import Target
from beanstalkd_py.plural import counted

MOST_LINES = 10**9
TURN_LINES = 100
"""Lines after which other requests have their turn."""


def _lines_of(arguments: Arguments) -> list[bytes]:
    lines = arguments.get("lines")
    if not isinstance(lines, str):
        raise errors.ToolUsageError("lines: give a text with a job as JSON in each line")
    return lines.encode().splitlines()


def _skip_of(arguments: Arguments) -> int:
    return number_of(arguments, "skip", 0, MOST_LINES, 0)


def plan_import(target: Target, arguments: Arguments) -> Plan:
    tube, skip, count = tube_of(arguments), _skip_of(arguments), 0
    for number, line in enumerate(_lines_of(arguments), 1):
        if number % TURN_LINES == 0:
            gevent.sleep(0)
        if number <= skip or not line.strip():
            continue
        try:
            parse_job(line)
        except errors.ToolUsageError as error:
            raise errors.ToolUsageError(f"line {number}: {error}") from error
        count += 1
    return Plan(count, f"Put {counted(count, 'job')} into {tube}")


def run_import(target: Target, arguments: Arguments, progress: Progress) -> str:
    tube, result = tube_of(arguments), ImportResult()

    def lines() -> Iterator[bytes]:
        for line in _lines_of(arguments):
            if progress.is_stopped:
                return
            yield line

    try:
        with target.connection() as connection:
            import_lines(
                *(connection, tube, lines(), _skip_of(arguments), result),
                deferred=lambda: progress.counting(lambda: result.put),
            )
    except errors.RefusedError as error:
        rest = f"put {counted(result.put, 'job')}; to continue, skip {result.line}"
        raise errors.RefusedError(error.word, f"{error}; {rest}") from error
    except errors.NoConnectionError as error:
        rest = f"processed {counted(result.line, 'line')}; jobs of the next ones may have been put"
        raise errors.NoConnectionError(f"{error}; {rest}") from error
    text = f"Put {counted(result.put, 'job')} into {tube}"
    return f"{text}; to continue, skip {result.line}" if progress.is_stopped else text
