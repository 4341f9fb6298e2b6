"""`history replay`: put finished jobs into a server again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.argument_type import ArgumentType
from beanstalkd_py.cli.connection_options import Server, TubeType, server_options
from beanstalkd_py.cli.history.replay_preview import show_preview
from beanstalkd_py.cli.history.replay_request import ReplayRequest, default_state, resolve
from beanstalkd_py.cli.history.replay_run import run_replay
from beanstalkd_py.cli.history.search import FILTER, parse_filters, with_filter_help
from beanstalkd_py.cli.history.store_options import StoredTube, StoreOptions
from beanstalkd_py.cli.number_arguments import Number, parse_float
from beanstalkd_py.cli.time_arguments import GivenTime, GivenTimeType

_UINT32_MAX = 2**32 - 1


class Rate(ArgumentType):
    """Jobs per second, at least 1e-6."""

    name = "rate"

    def parse(self, text: str) -> float:
        rate = parse_float(text)
        if not 1e-6 <= rate <= 1e9:
            raise ValueError(f"invalid rate {text!r}; use a number of jobs per second such as 50")
        return rate


def _number(name: str, what: str, text: str) -> Callable[[Any], Any]:
    kind = Number(what, maximum=_UINT32_MAX)
    return click.option(f"--{name}", metavar="N", type=kind, help=text)


@click.command()
@click.option(
    "--from",
    "since",
    metavar="TIME",
    type=GivenTimeType(),
    help="Only jobs that ended at TIME or later.",
)
@click.option(
    "--to",
    "until",
    metavar="TIME",
    type=GivenTimeType(),
    help="Only jobs that ended before TIME.  [default: now]",
)
@click.option(
    "--into", metavar="TUBE", type=TubeType(), help="Put the jobs into this tube instead."
)
@FILTER
@click.option(
    "--rate",
    metavar="JOBS",
    type=Rate(),
    help="Jobs per second, spread evenly.  [default: unlimited]",
)
@_number("pri", "a priority", "Replace the priority of all jobs.")
@_number("delay", "a number of seconds", "Delay all jobs by N seconds.")
@click.option("--keep-delay", is_flag=True, help="Delay each job as in its last put.")
@_number("ttr", "a number of seconds", "Replace the TTR of all jobs.")
@click.option("--dry-run", is_flag=True, help="Print what would be put, without connecting.")
@click.option(
    "--state",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for the progress.",
)
@click.option("--restart", is_flag=True, help="Start from the beginning, whatever was put before.")
@server_options(json="Print a JSON object at the end.")
@click.argument("tube", metavar="TUBE", type=StoredTube())
@click.pass_obj
@with_filter_help
def replay(
    options: StoreOptions,
    server: Server,
    tube: str,
    into: str | None,
    since: GivenTime | None,
    until: GivenTime | None,
    filters: tuple[str, ...],
    rate: float | None,
    pri: int | None,
    delay: int | None,
    keep_delay: bool,
    ttr: int | None,
    dry_run: bool,
    state: Path | None,
    restart: bool,
    as_json: bool,
) -> int:
    """Put finished jobs of TUBE into a server again.

    Jobs are put in the order in which they ended. They get new ids, keep priority and TTR, and are
    ready at once. Without --from the replay starts with the oldest job. Messages of RocketMQ are
    put with priority 65536, no delay and a TTR of 60 s.

    After an interruption (Ctrl-C, a kill, or an error of the server), the same command continues.
    The progress is stored in a file, by default under $XDG_STATE_HOME or ~/.local/state, in
    beanstalkd-py, for this store, server, tube, time range, --into and --filter. No job is omitted.
    After a kill or a lost connection, up to 128 jobs that were in flight may be put twice, after a
    power cut those of the last second. Relative TIMEs and a missing --to are resolved at the first
    start. A finished replay puts nothing again without --restart.

    A job cannot be put if the store does not have its body, if it exceeds max-job-size, if it is
    damaged, or if it has expired. Such jobs are reported and counted.

    CONDITIONS

    \b
    Examples:
      beanstalkd-py history --store /var/lib/history replay mails \\
          --from 12h --dry-run --rate 50
      beanstalkd-py history --store /var/lib/history replay mails \\
          --from 12h --rate 50
      beanstalkd-py history replay mails --into retry \\
          --filter 'buries>0' --filter 'body~ann'

    Exit status 1 if the server refused a job, or a job could not be put.
    """
    from beanstalkd_py.replay.jobs import JobOverrides

    if keep_delay and delay is not None:
        raise errors.ToolUsageError("--delay and --keep-delay exclude each other")
    request = ReplayRequest(
        options=options,
        server=server,
        tube=tube,
        into=into,
        since=since,
        until=until,
        filters=filters,
        rate=rate,
        overrides=JobOverrides(pri, delay, ttr, keep_delay),
        state=state,
        restart=restart,
        as_json=as_json,
    )
    parse_filters(filters)  # report an invalid filter before opening the store
    with options.reading() as store:
        resolved = resolve(store, request)
        path = state or default_state(resolved, server)
        if dry_run:
            return show_preview(request, store, resolved, path)
        return run_replay(request, store, resolved, path)
