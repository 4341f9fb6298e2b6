"""`pipeline report`: an HTML page with plots."""

from __future__ import annotations

import time

import click

from beanstalkd_py.cli.argument_types import TimeType
from beanstalkd_py.cli.options import file_option
from beanstalkd_py.cli.output import notice
from beanstalkd_py.cli.pipeline.spark_options import (
    INPUTS,
    SparkRunner,
    spark_options,
    usage_errors,
    utc_datetime,
)
from beanstalkd_py.pipeline.jobs.durations import microseconds_of


@click.command()
@INPUTS
@file_option("-o --output", "File of the page, such as report.html.", required=True)
@click.option("--from", "since", metavar="TIME", type=TimeType(), help="Start of the report.")
@click.option("--to", "until", metavar="TIME", type=TimeType(), help="End of the report.")
@click.option(
    "--window",
    metavar="LENGTH",
    help="Interval of the plots: '1 minute'.  [default: by the time range]",
)
@spark_options
def report(
    inputs: tuple[str, ...],
    output: str,
    since: int | None,
    until: int | None,
    window: str | None,
    spark: SparkRunner,
) -> int:
    """Write an HTML page with plots of rates, waiting times and depth.

    The page also has plots of buried jobs and of the disk. It is a single file. TIME is UTC,
    2026-11-21T15:00:00, or a duration before now: 90s, 15m, 2h, 3d.

    \b
    Example:
      beanstalkd-py pipeline report -i '/srv/*/binlog' -i '/srv/*/history' \\
          --from 1d -o day.html
    """
    begun_mono = time.monotonic()
    with usage_errors():
        if window is not None:
            microseconds_of("window", window)
    with spark.running("report") as running:
        from beanstalkd_py.pipeline.report.page import write_report

        write_report(
            running.spark,
            list(inputs),
            output,
            begin=utc_datetime(since),
            end=utc_datetime(until),
            window=window,
        )
        running.hide_progress()
        notice(f"wrote {output} in {time.monotonic() - begun_mono:.1f} s")
    return 0
