"""`pipeline report`: an HTML page with plots."""

from __future__ import annotations

from datetime import datetime

import click

from beanstalkd_py.cli.options import file_option, option
from beanstalkd_py.cli.output import notice
from beanstalkd_py.cli.pipeline.output import damage_status
from beanstalkd_py.cli.pipeline.spark_options import (
    INPUTS,
    SparkRunner,
    UtcTime,
    spark_options,
    usage_errors,
)
from beanstalkd_py.pipeline.jobs.durations import microseconds_of


@click.command()
@INPUTS
@file_option("-o --output", "File of the page, such as report.html.", required=True)
@option("--from begin", "Start of the report.", UtcTime(), metavar="TIME")
@option("--to end", "End of the report.", UtcTime(), metavar="TIME")
@option(
    "--window", "Interval of the plots: '1 minute'.  [default: by the time range]", metavar="LENGTH"
)
@spark_options
def report(
    inputs: tuple[str, ...],
    output: str,
    begin: datetime | None,
    end: datetime | None,
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
    with usage_errors():
        if window is not None:
            microseconds_of("window", window)
    with spark.running("report", inputs) as running:
        from beanstalkd_py.pipeline.report.page import write_report

        faults = write_report(running.spark, list(inputs), output, begin, end, window)
        running.hide_progress()
        notice(f"wrote {output} in {running.took}")
    return damage_status(faults)
