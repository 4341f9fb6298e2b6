"""Commands for single jobs: put, reserve, peek, delete, bury, kick."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.connection_options import CONTEXT, Server, TubeType, on_server
from beanstalkd_py.cli.number_arguments import Number
from beanstalkd_py.cli.output import counted, say, write_body, write_json, write_line

if TYPE_CHECKING:
    from beanstalkd_py.admin.connection import Connection
    from beanstalkd_py.admin.job_record import Job
    from beanstalkd_py.admin.jobs import Outcome

UINT32_MAX = 2**32 - 1
JOB_JSON = "One JSON object: id, tube, state, pri, delay, ttr (seconds), body or body_base64."

_ID = Number("a job id", minimum=1, maximum=2**64 - 1)
_SECONDS = Number("a number of seconds", maximum=UINT32_MAX)


@click.command(context_settings=CONTEXT)
@click.option("--tube", type=TubeType(), default="default", show_default=True)
@click.option(
    "--pri",
    type=Number("a priority", maximum=UINT32_MAX),
    default=65536,
    show_default=True,
    help="0 is the most urgent.",
)
@click.option("--delay", type=_SECONDS, default=0, show_default=True, help="In seconds.")
@click.option("--ttr", type=_SECONDS, default=60, show_default=True, help="In seconds.")
@on_server(json="One JSON object: id, tube.")
@click.argument("body")
def put(
    server: Server, as_json: bool, tube: str, pri: int, delay: int, ttr: int, body: str
) -> None:
    """Put a job; prints its id.

    BODY is taken as it is, to the byte; - reads it from stdin. Put -- before a BODY that begins
    with a dash.

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
    if as_json:
        write_json({"id": job, "tube": tube})
    else:
        write_line(str(job))


@click.command(context_settings=CONTEXT)
@click.option(
    "--tube",
    "tubes",
    type=TubeType(),
    multiple=True,
    default=["default"],
    show_default=True,
    help="May be given several times.",
)
@click.option(
    "--timeout",
    "wait_s",
    metavar="SECONDS",
    type=Number("a number of seconds", maximum=2**31 - 1),
    help="Wait so long for a job, 0 for not at all; without it, until there is one.",
)
@click.option("--release", "what", flag_value="release", default=True, help="The default.")
@click.option("--delete", "what", flag_value="delete", help="Delete it once it is printed.")
@click.option("--bury", "what", flag_value="bury", help="Bury it once it is printed.")
@on_server(waits=True, json=f"{JOB_JSON} And `then`: released, deleted or buried.")
def reserve(
    server: Server, as_json: bool, tubes: tuple[str, ...], wait_s: int | None, what: str
) -> None:
    """Reserve the next job and print its body.

    The job is then released with its priority, so by default nothing is lost but its turn's count
    of reserves and releases. --delete or --bury does that instead, after the body has left this
    process; if that fails, the job becomes ready again. The body is all that goes to stdout; what
    job it was is said on stderr.

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
            write_json({**job.to_json(), "then": f"{what}d" if what != "bury" else "buried"})
        else:
            write_body(job.body)
        done = jobs.settle(connection, job, what)
        if not as_json:
            say(f"{_description(job)}; {done}")


def _description(job: Job) -> str:
    return (
        f"job {job.id} of tube {job.tube}: {job.state}, pri {job.pri}, delay {job.delay_s} s,"
        f" TTR {job.ttr_s} s, {counted(len(job.body), 'byte')}"
    )


@click.command(context_settings=CONTEXT)
@click.option("--ready", "state", flag_value="ready", help="The next ready job of --tube.")
@click.option("--delayed", "state", flag_value="delayed", help="The next delayed one.")
@click.option("--buried", "state", flag_value="buried", help="The one buried longest ago.")
@click.option("--tube", type=TubeType(), default="default", show_default=True)
@on_server(json=JOB_JSON)
@click.argument("job_id", metavar="[ID]", type=_ID, required=False)
def peek(server: Server, as_json: bool, state: str | None, tube: str, job_id: int | None) -> None:
    """Print the body of a job without taking it.

    Give an ID, or one of --ready, --delayed and --buried for the first job of a tube. The body is
    all that goes to stdout; what job it is is said on stderr.

    \b
    Examples:
      beanstalkd-py peek 17
      beanstalkd-py peek --buried --tube mails
      beanstalkd-py peek --ready --tube mails --json | jq .pri
    """
    from beanstalkd_py.admin import jobs

    if (job_id is None) == (state is None):
        raise click.UsageError("Give either an ID or one of --ready, --delayed, --buried")
    with server.connect() as connection:
        if job_id is not None:
            job = jobs.peek(connection, job_id)
        else:
            job = jobs.peek_first(connection, tube, state or "")
    if as_json:
        write_json(job.to_json())
    else:
        write_body(job.body)
        say(_description(job))


_OUTCOMES_JSON = "One JSON array with an object for each ID: id, result (the server's word)."


@click.command(context_settings=CONTEXT)
@on_server(json=_OUTCOMES_JSON)
@click.argument("ids", metavar="ID...", type=_ID, nargs=-1, required=True)
def delete(server: Server, as_json: bool, ids: tuple[int, ...]) -> None:
    """Delete jobs by their ids.

    A job that a client has reserved can be deleted by that client only.

    \b
    Examples:
      beanstalkd-py delete 17
      beanstalkd-py delete 17 18 19 --json

    Exit status 1 if any could not be deleted; the others are.
    """
    from beanstalkd_py.admin import jobs

    _each(server, as_json, jobs.delete, ids, "deleted")


@click.command(context_settings=CONTEXT)
@on_server(json=_OUTCOMES_JSON)
@click.argument("ids", metavar="ID...", type=_ID, nargs=-1, required=True)
def bury(server: Server, as_json: bool, ids: tuple[int, ...]) -> None:
    """Bury ready or delayed jobs by their ids.

    Each is reserved for a moment, because only who has reserved a job may bury it: its count of
    reserves rises. A kill in that moment leaves it ready.

    \b
    Examples:
      beanstalkd-py bury 17
      beanstalkd-py bury 17 18 19

    Exit status 1 if any could not be buried; the others are.
    """
    from beanstalkd_py.admin import jobs

    _each(server, as_json, jobs.bury, ids, "buried")


def _each(
    server: Server,
    as_json: bool,
    order: Callable[[Connection, Sequence[int]], list[Outcome]],
    ids: Sequence[int],
    done: str,
) -> None:
    with server.connect() as connection:
        outcomes = order(connection, ids)
    failed = [each for each in outcomes if each.word != done.upper()]
    if as_json:
        write_json([{"id": each.id, "result": each.word} for each in outcomes])
    else:
        for each in outcomes:
            if each not in failed:
                write_line(f"{done} {each.id}")
    if failed:
        which = ", ".join(str(each.id) for each in failed)
        text = f"not {done}: {which}; there is no such job, or a client has it"
        if done == "kicked":
            text = f"not {done}: {which}; there is no such job that is buried or delayed"
        raise errors.RefusedError(failed[0].word, f"{text} ({failed[0].word})")


@click.command(context_settings=CONTEXT)
@click.option("--tube", type=TubeType(), help="Kick the first N jobs of this tube.")
@on_server(json="With IDs as in delete; with --tube one object: tube, kicked.")
@click.argument("numbers", metavar="N|ID...", type=_ID, nargs=-1, required=True)
def kick(server: Server, as_json: bool, tube: str | None, numbers: tuple[int, ...]) -> None:
    """Make buried or delayed jobs ready.

    Give their ids, or --tube and N for the first N of a tube. With --tube, buried jobs are kicked;
    only if there is none, delayed ones.

    \b
    Examples:
      beanstalkd-py kick 17 18
      beanstalkd-py kick --tube mails 1000

    Exit status 1 if there is no such tube, or if a job could not be kicked; the others are.
    """
    from beanstalkd_py.admin import jobs

    if tube is None:
        _each(server, as_json, jobs.kick, numbers, "kicked")
        return
    if len(numbers) != 1 or numbers[0] > UINT32_MAX:
        raise click.UsageError(f"Give one number up to {UINT32_MAX} with --tube")
    from beanstalkd_py.admin.statistics import tube_stats

    with server.connect() as connection:
        tube_stats(connection, tube)  # a kick makes the tube that it names
        kicked = jobs.kick_first(connection, tube, numbers[0])
    if as_json:
        write_json({"tube": tube, "kicked": kicked})
    else:
        write_line(f"kicked {counted(kicked)} of tube {tube}")
