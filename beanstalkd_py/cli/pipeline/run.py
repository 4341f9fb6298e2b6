"""`pipeline run`: run one job and write its rows."""

from __future__ import annotations

import inspect
from typing import Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.argument_types import Number
from beanstalkd_py.cli.options import option
from beanstalkd_py.cli.output import notice
from beanstalkd_py.cli.pipeline.output import INCOMPLETE, Target, damage_status, output_options
from beanstalkd_py.cli.pipeline.spark_options import (
    INPUTS,
    MODE,
    Running,
    SparkRunner,
    UtcTime,
    spark_options,
    usage_errors,
)
from beanstalkd_py.pipeline.jobs.job_request import JobRequest, check, options_of
from beanstalkd_py.pipeline.jobs.registry import JOBS, Job, Needs
from beanstalkd_py.plural import counted


def _list_jobs_in_help(command: Any) -> Any:
    lines = "\n  ".join(f"{job.name:<15} {job.about}" for job in JOBS.values())
    # Python 3.13 removes the indentation of docstrings, older ones do not.
    command.__doc__ = inspect.cleandoc(command.__doc__).replace("JOBS", lines)
    return command


@click.command()
@INPUTS
@output_options
@option("--from begin", "Only data at or after TIME.", UtcTime(), metavar="TIME")
@option("--to end", "Only data before TIME.", UtcTime(), metavar="TIME")
@option("--tube tubes", "Only this tube; may be repeated.", metavar="TUBE", multiple=True)
@option("--window", "tube-metrics: length of a window, '10 seconds', '1 hour'.", metavar="LENGTH")
@option(
    "--timeouts",
    "dead-letters: jobs with at least N timeouts.",
    Number("a number of timeouts", minimum=1, maximum=2**31 - 1),
    metavar="N",
)
@option("--bodies", "export: include the bodies.", is_flag=True, default=None)
@option(
    "--allow-loss",
    "export: report and skip files that the server removed before they were read.",
    is_flag=True,
    default=None,
)
@MODE
@spark_options
@click.argument("job", metavar="JOB", type=click.Choice(list(JOBS)))
@_list_jobs_in_help
def run(
    job: str, inputs: tuple[str, ...], target: Target, spark: SparkRunner, **options: Any
) -> int:
    """Run JOB on binlogs and history stores.

    \b
    Jobs:
      JOBS

    Writes the rows to a new folder, which appears when it is complete, or to stdout: the first ones
    as a table with the most important columns, or all of them as JSON lines or CSV. Times are UTC.

    --from and --to select jobs that existed in the time range (timelines), windows that overlap it
    (tube-metrics), or jobs with their last event in it (dead-letters). Other jobs read all data.
    TIME is 2026-11-21T15:00:00, or a duration before now: 90s, 15m, 2h, 3d.

    A finished job that is in a history store and still in a binlog counts once. verify and
    binlog-health accept only binlogs. export adds new rows since its last run to its --output, as
    Delta Lake tables partitioned by date.

    \b
    Examples:
      beanstalkd-py pipeline run dead-letters \\
          --input /var/lib/beanstalkd --timeouts 5
      beanstalkd-py pipeline run tube-metrics \\
          -i '/srv/*/binlog' -i '/srv/*/history' \\
          --from 1d --window '5 minutes' --format csv > day.csv
      beanstalkd-py pipeline run verify --input '/srv/*/binlog' && echo sound

    Exit status 1 if damaged places were skipped (unless --mode dropmalformed accepts them), or if
    verify finds violations.
    """
    registered, request = JOBS[job], JobRequest(**options)
    with usage_errors():
        check(registered, request)
        _check_output(registered, target)
    with spark.running(job, inputs) as running:
        from beanstalkd_py.pipeline.damage_count import DamageCount
        from beanstalkd_py.pipeline.inputs import sort_inputs
        from beanstalkd_py.pipeline.jobs.run import frame_of

        if registered.needs is Needs.INPUTS:
            return damage_status(_run_with_own_output(running, registered, inputs, target, request))
        damage = DamageCount()
        sorted_inputs = sort_inputs(running.spark, list(inputs))
        rows = frame_of(running.spark, registered, sorted_inputs, request, damage)
        if target.output is None:
            rows = rows.orderBy(*_order(registered))
        count = target.write(running, rows, registered.shown)
        status = damage_status(*damage.faults())
    return INCOMPLETE if registered.are_faults and count else status


def _check_output(job: Job, target: Target) -> None:
    if job.needs is not Needs.INPUTS:
        return
    if target.output is None:
        raise errors.PipelineUsageError(f"{job.name} requires --output FOLDER")
    if target.overwrite or target.form not in (None, "parquet"):
        raise errors.PipelineUsageError(
            f"{job.name} adds to Delta Lake tables in its folder; omit --overwrite and --format"
        )


def _order(job: Job) -> list[Any]:
    """Return the sort columns; a - before a name sorts it in descending order."""
    from pyspark.sql import functions as f

    return [f.desc(name[1:]) if name.startswith("-") else f.asc(name) for name in job.order]


def _run_with_own_output(
    running: Running, job: Job, inputs: tuple[str, ...], target: Target, request: JobRequest
) -> int:
    """Run a job that writes its own output; return the number of damaged places."""
    options = options_of(job, request)
    result = job.load()(running.spark, list(inputs), target.output, mode=request.mode, **options)
    rows, files = counted(result.rows, "row"), counted(result.files, "file")
    size = counted(result.size, "byte")
    notice(f"added {rows} to {target.output} in {running.took}; {files}, {size}")
    return int(result.faults)
