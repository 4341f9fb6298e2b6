"""`history replay`: put finished jobs into a server again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.argument_types import Number, Rate, TimeArgumentType
from beanstalkd_py.cli.connection_options import TubeType, server_options
from beanstalkd_py.cli.history.replay_request import ReplayRequest, resolve
from beanstalkd_py.cli.history.replay_run import run_replay, show_preview
from beanstalkd_py.cli.history.search import Filters, filter_option
from beanstalkd_py.cli.history.store_options import StoredTube, StoreOptions
from beanstalkd_py.cli.options import Decorator, option
from beanstalkd_py.quantities import UINT32_MAX


def _uint32_option(name: str, what: str, text: str) -> Decorator:
    return option(f"--{name}", text, Number(what, maximum=UINT32_MAX))


@click.command()
@option("--from since", "Only jobs that ended at TIME or later.", TimeArgumentType())
@option("--to until", "Only jobs that ended before TIME.  [default: now]", TimeArgumentType())
@option("--into", "Put the jobs into this tube instead.", TubeType())
@filter_option
@option("--rate", "Jobs per second, spread evenly.  [default: unlimited]", Rate())
@_uint32_option("pri", "a priority", "Replace the priority of all jobs.")
@_uint32_option("delay", "a number of seconds", "Delay all jobs by N seconds.")
@option("--keep-delay", "Delay each job as in its last put.", is_flag=True)
@_uint32_option("ttr", "a number of seconds", "Replace the TTR of all jobs.")
@option("--dry-run", "Print what would be put, without connecting.", is_flag=True)
@option(
    "--state", "File for the progress.", click.Path(path_type=Path, dir_okay=False), metavar="FILE"
)
@option("--restart", "Start from the beginning, whatever was put before.", is_flag=True)
@server_options(json="Print a JSON object at the end.")
@click.argument("tube", metavar="TUBE", type=StoredTube())
@click.pass_obj
def replay(
    options: StoreOptions,
    /,
    pri: int | None,
    delay: int | None,
    ttr: int | None,
    keep_delay: bool,
    dry_run: bool,
    **arguments: Any,
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
    Filters(arguments["filters"])  # report an invalid filter before opening the store
    overrides = JobOverrides(pri, delay, ttr, keep_delay)
    with options.reading() as store:
        request = ReplayRequest(options=options, store=store, overrides=overrides, **arguments)
        run = show_preview if dry_run else run_replay
        return run(request, resolve(request))
