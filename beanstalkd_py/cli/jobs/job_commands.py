"""Commands for single jobs: put, reserve, peek, delete, bury, kick."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from beanstalkd_py import errors
from beanstalkd_py.cli import output
from beanstalkd_py.cli.argument_types import Number
from beanstalkd_py.cli.connection_options import CONTEXT, Server, TubeType, server_options
from beanstalkd_py.cli.options import option
from beanstalkd_py.plural import counted
from beanstalkd_py.quantities import UINT32_MAX

if TYPE_CHECKING:
    from beanstalkd_py.admin.connection import Connection
    from beanstalkd_py.admin.job_record import Job

JOB_JSON = "Print a JSON object: id, tube, state, pri, delay, ttr (seconds), body or body_base64."

JOB_ID = Number("a job id", minimum=1, maximum=2**64 - 1)
_NUMBER = {"metavar": "NUMBER", "show_default": True}
_PRIORITY = Number("a priority", maximum=UINT32_MAX)
_SECONDS = Number("a number of seconds", maximum=UINT32_MAX)


@click.command(context_settings=CONTEXT)
@option("--tube", kind=TubeType(), default="default")
@option("--pri", "Priority; 0 is the most urgent.", _PRIORITY, **_NUMBER, default=65536)
@option("--delay", "Delay in seconds.", _SECONDS, **_NUMBER, default=0)
@option("--ttr", "Time to run in seconds.", _SECONDS, **_NUMBER, default=60)
@server_options(json="Print a JSON object: id, tube.")
@click.argument("body")
def put(
    server: Server, as_json: bool, tube: str, pri: int, delay: int, ttr: int, body: str
) -> None:
    """Put a job and print its id.

    BODY is used byte for byte; - reads the body from stdin. Write -- before a BODY that starts with
    a dash.

    \b
    Examples:
      beanstalkd-py put --tube mails 'to=ann'
      beanstalkd-py put --tube images --ttr 600 - < picture.png
      beanstalkd-py put --pri 0 --delay 60 --json -- -1
    """
    from beanstalkd_py.admin import jobs

    data = sys.stdin.buffer.read() if body == "-" else os.fsencode(body)
    with server.connect() as connection:
        job = jobs.put(connection, tube, data, pri=pri, delay_s=delay, ttr_s=ttr)
    output.write_result(as_json, {"id": job, "tube": tube}, str(job))


@click.command(context_settings=CONTEXT)
@option(
    "--tube tubes",
    "Watch this tube; may be repeated.",
    TubeType(),
    multiple=True,
    default=["default"],
)
@option(
    "--timeout wait_s",
    "Maximum wait for a job; 0 does not wait.  [default: no limit]",
    Number("a number of seconds", maximum=2**31 - 1),
    metavar="SECONDS",
)
@option("--release action", "The default.", flag_value="release", default=True)
@option("--delete action", "Delete the job after printing.", flag_value="delete")
@option("--bury action", "Bury the job after printing.", flag_value="bury")
@server_options(waits=True, json=f"{JOB_JSON} Also `then`: released, deleted or buried.")
def reserve(
    server: Server, as_json: bool, tubes: tuple[str, ...], wait_s: int | None, action: str
) -> None:
    """Reserve the next job and print its body.

    The job is then released with its priority; its counts of reserves and releases change, and a
    policy of its tube may delay, bury, move or delete it, as after any release.
    --delete and --bury take effect after the body has been written. If the write fails, the job
    becomes ready again. stdout receives only the body, stderr a description of the job.

    \b
    Examples:
      beanstalkd-py reserve --tube mails --timeout 0
      beanstalkd-py reserve --tube mails --tube bills --delete > job
      beanstalkd-py reserve --tube mails --bury --json | jq -r .body

    Exit status 1 if no job became ready in time (TIMED_OUT).
    """
    from beanstalkd_py.admin import jobs

    with server.connect() as connection, jobs.reserved(connection, tubes, wait_s) as job:
        if as_json:
            then = "buried" if action == "bury" else f"{action}d"
            output.write_json({**job.to_json(), "then": then})
        else:
            output.write_body(job.body)
        outcome = jobs.finish(connection, job, action)
        if not as_json:
            output.notice(f"{_description(job)}; {outcome}")


def _description(job: Job) -> str:
    return (
        f"job {job.id} of tube {job.tube}: {job.state}, pri {job.pri}, delay {job.delay_s} s,"
        f" TTR {job.ttr_s} s, {counted(len(job.body), 'byte')}"
    )


@click.command(context_settings=CONTEXT)
@option("--ready state", "The next ready job of --tube.", flag_value="ready")
@option("--delayed state", "The next delayed job.", flag_value="delayed")
@option("--buried state", "The job that was buried first.", flag_value="buried")
@option("--tube", kind=TubeType(), default="default")
@server_options(json=JOB_JSON)
@click.argument("job_id", metavar="[ID]", type=JOB_ID, required=False)
def peek(server: Server, as_json: bool, state: str | None, tube: str, job_id: int | None) -> None:
    """Print the body of a job without reserving it.

    Select the job by ID, or the first job of a tube by --ready, --delayed or --buried. stdout
    receives only the body, stderr a description of the job.

    \b
    Examples:
      beanstalkd-py peek 17
      beanstalkd-py peek --buried --tube mails
      beanstalkd-py peek --ready --tube mails --json | jq .pri
    """
    from beanstalkd_py.admin import jobs

    if (job_id is None) == (state is None):
        raise click.UsageError("exactly one of ID, --ready, --delayed and --buried is required")
    with server.connect() as connection:
        if job_id is not None:
            job = jobs.peek(connection, job_id)
        else:
            job = jobs.peek_first(connection, tube, state or "")
    if as_json:
        output.write_json(job.to_json())
    else:
        output.write_body(job.body)
        output.notice(_description(job))


_RESULTS_JSON = "Print a JSON array with an object for each ID: id, result (first word of reply)."


@click.command(context_settings=CONTEXT)
@server_options(json=_RESULTS_JSON)
@click.argument("ids", metavar="ID...", type=JOB_ID, nargs=-1, required=True)
def delete(server: Server, as_json: bool, ids: tuple[int, ...]) -> None:
    """Delete jobs by their ids.

    A reserved job can be deleted only by the client that has reserved it.

    \b
    Examples:
      beanstalkd-py delete 17
      beanstalkd-py delete 17 18 19 --json

    Exit status 1 if a job could not be deleted; the others are deleted.
    """
    from beanstalkd_py.admin import jobs

    _run_on_ids(server, as_json, jobs.delete, ids, "deleted")


@click.command(context_settings=CONTEXT)
@server_options(json=_RESULTS_JSON)
@click.argument("ids", metavar="ID...", type=JOB_ID, nargs=-1, required=True)
def bury(server: Server, as_json: bool, ids: tuple[int, ...]) -> None:
    """Bury ready or delayed jobs by their ids.

    The command reserves each job for a moment, because only the client that has reserved a job can
    bury it. This increments the job's count of reserves. A kill in that moment leaves it ready.

    \b
    Examples:
      beanstalkd-py bury 17
      beanstalkd-py bury 17 18 19

    Exit status 1 if a job could not be buried; the others are buried.
    """
    from beanstalkd_py.admin import jobs

    _run_on_ids(server, as_json, jobs.bury, ids, "buried")


def _run_on_ids(
    server: Server,
    as_json: bool,
    command: Callable[[Connection, Sequence[int]], list[str]],
    ids: Sequence[int],
    outcome: str,
) -> None:
    with server.connect() as connection:
        results = list(zip(ids, command(connection, ids), strict=True))
    failed = [(job, word) for job, word in results if word != outcome.upper()]
    if as_json:
        output.write_json([{"id": job, "result": word} for job, word in results])
    else:
        for job, word in results:
            if word == outcome.upper():
                output.write_line(f"{outcome} {job}")
    if failed:
        which = ", ".join(str(job) for job, _ in failed)
        reason = "no such job, or reserved by another client"
        if outcome == "kicked":
            reason = "no such job, or neither buried nor delayed"
        word = failed[0][1]
        raise errors.RefusedError(word, f"not {outcome}: {which}; {reason} ({word})")


@click.command(context_settings=CONTEXT)
@option("--tube", "Kick the first N jobs of this tube.", TubeType())
@server_options(json="Print what delete prints; with --tube a JSON object: tube, kicked.")
@click.argument("numbers", metavar="N|ID...", type=JOB_ID, nargs=-1, required=True)
def kick(server: Server, as_json: bool, tube: str | None, numbers: tuple[int, ...]) -> None:
    """Make buried or delayed jobs ready.

    Select the jobs by ID, or the first N jobs of a tube by --tube. With --tube, delayed jobs are
    kicked only if no job is buried.

    \b
    Examples:
      beanstalkd-py kick 17 18
      beanstalkd-py kick --tube mails 1000

    Exit status 1 if the tube does not exist or a job could not be kicked; the others are kicked.
    """
    from beanstalkd_py.admin import jobs

    if tube is None:
        _run_on_ids(server, as_json, jobs.kick, numbers, "kicked")
        return
    if len(numbers) != 1 or numbers[0] > UINT32_MAX:
        raise click.UsageError(f"--tube requires exactly one number, at most {UINT32_MAX}")
    from beanstalkd_py.admin.statistics import tube_stats

    with server.connect() as connection:
        tube_stats(connection, tube)  # raises for a missing tube, which the kick would create
        kicked = jobs.kick_first(connection, tube, numbers[0])
    output.write_result(
        as_json, {"tube": tube, "kicked": kicked}, f"kicked {counted(kicked)} of tube {tube}"
    )
