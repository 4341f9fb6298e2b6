"""`pipeline report`: a page to look at and to print."""

from __future__ import annotations

import time
from typing import Any

import click

from beanstalkd_py.cli.output import say
from beanstalkd_py.cli.path_completion import complete_file
from beanstalkd_py.cli.pipeline.spark_options import (
    INPUTS,
    mistakes_told,
    moment,
    on_spark,
    place_of,
)
from beanstalkd_py.cli.time_arguments import Moment
from beanstalkd_py.pipeline.jobs.durations import microseconds_of


@click.command()
@INPUTS
@click.option(
    *("-o", "--output"),
    metavar="FILE",
    shell_complete=complete_file,
    required=True,
    help="The page, such as report.html.",
)
@click.option("--from", "since", metavar="TIME", type=Moment(), help="From then on.")
@click.option("--to", "until", metavar="TIME", type=Moment(), help="Until then.")
@click.option("--window", metavar="LENGTH", help="Of the plots: '1 minute'. [default: by the span]")
@on_spark
def report(
    inputs: tuple[str, ...],
    output: str,
    since: int | None,
    until: int | None,
    window: str | None,
    **given: Any,
) -> int:
    """Make a page with plots of rates, waiting times and depth.

    It plots buried jobs and the disk, too. It is one file of HTML that needs nothing else. TIME is
    UTC, 2026-11-21T15:00:00, or how long ago: 90s, 15m, 2h, 3d.

    \b
    Example:
      beanstalkd-py pipeline report -i '/srv/*/binlog' -i '/srv/*/history' \\
          --from 1d -o day.html
    """
    begun_mono = time.monotonic()
    place = place_of(given)
    with mistakes_told():
        if window is not None:
            microseconds_of("window", window)
    with place.running("report") as running:
        from beanstalkd_py.pipeline.report.page import write_report

        write_report(
            running.spark,
            list(inputs),
            output,
            begin=moment(since),
            end=moment(until),
            window=window,
        )
        running.hide()
        say(f"wrote {output} in {time.monotonic() - begun_mono:.1f} s")
    return 0
