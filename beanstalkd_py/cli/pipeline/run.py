"""`pipeline run`: one job, and where its rows go."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.number_arguments import Number
from beanstalkd_py.cli.output import counted, say
from beanstalkd_py.cli.pipeline.output import Target, tell_damage, to_output
from beanstalkd_py.cli.pipeline.spark_options import (
    INPUTS,
    MODE,
    mistakes_told,
    moment,
    on_spark,
    place_of,
)
from beanstalkd_py.cli.time_arguments import Moment
from beanstalkd_py.pipeline.jobs.job_request import JobRequest, check, options_of
from beanstalkd_py.pipeline.jobs.registry import JOBS, Job, Needs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAULTS = 1
_LIST = "\n".join(f"      {job.name:<15} {job.about}" for job in JOBS.values())


def _described(command: Any) -> Any:
    command.__doc__ = command.__doc__.replace("JOBS", _LIST.strip())
    return command


@click.command()
@INPUTS
@to_output
@click.option(
    "--from", "since", metavar="TIME", type=Moment(), help="Only what belongs to then or later."
)
@click.option("--to", "until", metavar="TIME", type=Moment(), help="And to before then.")
@click.option("--tube", "tubes", metavar="TUBE", multiple=True, help="Only of this tube.")
@click.option("--window", metavar="LENGTH", help="Of tube-metrics: '10 seconds', '1 hour'.")
@click.option(
    "--timeouts",
    metavar="N",
    type=Number("a number of timeouts", minimum=1, maximum=2**31 - 1),
    help="Of dead-letters: jobs whose time ran out so often.",
)
@click.option("--bodies", is_flag=True, default=None, help="Of export: the bodies, too.")
@click.option(
    "--allow-loss",
    is_flag=True,
    default=None,
    help="Of export: go on without what the server removed before it was read, and say so.",
)
@MODE
@on_spark
@click.argument("job", metavar="JOB", type=click.Choice(list(JOBS)))
@_described
def run(job: str, inputs: tuple[str, ...], **given: Any) -> int:
    """Run JOB over binlogs and history stores.

    \b
    Jobs:
      JOBS

    Rows go into a new folder of files, which appears when it is whole, or to stdout: the first ones
    as a table with the most important columns, or all of them as JSON lines or CSV. Times are UTC.

    --from and --to choose, of timelines, jobs that were there between; of tube-metrics, windows
    that overlap (depth is right nevertheless); of dead-letters, jobs whose last event was then. The
    other jobs need everything. TIME is 2026-11-21T15:00:00, or how long ago: 90s, 15m, 2h, 3d.

    A job that has ended may be in a history store and in a binlog still; it counts once. verify
    and binlog-health take binlogs only. export adds to its --output what is new
    since its last run, as Parquet in folders by date and tube.

    \b
    Examples:
      beanstalkd-py pipeline run dead-letters \\
          --input /var/lib/beanstalkd --timeouts 5
      beanstalkd-py pipeline run tube-metrics \\
          -i '/srv/*/binlog' -i '/srv/*/history' \\
          --from 1d --window '5 minutes' --format csv > day.csv
      beanstalkd-py pipeline run verify --input '/srv/*/binlog' && echo sound

    Exit status 1 if verify finds something, or a place that cannot be read.
    """
    begun_mono = time.monotonic()
    place, chosen = place_of(given), JOBS[job]
    target = Target.of(given)
    request = _request(given)
    with mistakes_told():
        check(chosen, request)
        _check_output(chosen, target)
    with place.running(job) as running:
        from beanstalkd_py.pipeline.damage_count import DamageCount
        from beanstalkd_py.pipeline.inputs import sort_inputs
        from beanstalkd_py.pipeline.jobs.run import frame_of

        if chosen.needs is Needs.INPUTS:
            return _add(running.spark, chosen, inputs, target, request, begun_mono)
        damage = DamageCount()
        given_inputs = sort_inputs(running.spark, list(inputs))
        rows = frame_of(running.spark, chosen, given_inputs, request, damage)
        if not target.is_folder:
            rows = rows.orderBy(*_order(chosen))
        count = target.write(running, rows, chosen.shown, begun_mono)
        places = damage.places
        tell_damage(places)
    return FAULTS if chosen.are_faults and (count or places) else 0


def _request(given: dict[str, Any]) -> JobRequest:
    return JobRequest(
        mode=given["mode"],
        begin=moment(given["since"]),
        end=moment(given["until"]),
        tubes=given["tubes"],
        window=given["window"],
        timeouts=given["timeouts"],
        bodies=given["bodies"],
        allow_loss=given["allow_loss"],
    )


def _check_output(job: Job, target: Target) -> None:
    if job.needs is not Needs.INPUTS:
        return
    if target.output is None:
        raise errors.PipelineUsageError(f"{job.name} adds to a folder; give --output FOLDER")
    if target.overwrite or target.form not in (None, "parquet"):
        raise errors.PipelineUsageError(
            f"{job.name} adds Parquet to what is there; leave out --overwrite and --format"
        )


def _order(job: Job) -> list[Any]:
    """A - before a name puts large values first."""
    from pyspark.sql import functions as f

    return [f.desc(name[1:]) if name.startswith("-") else f.asc(name) for name in job.order]


def _add(
    spark: SparkSession,
    job: Job,
    inputs: tuple[str, ...],
    target: Target,
    request: JobRequest,
    begun_mono: float,
) -> int:
    options = options_of(job, request)
    result = job.load()(spark, list(inputs), target.output, mode=request.mode, **options)
    rows, files = counted(result.rows, "row"), counted(result.files, "file")
    took = f"{time.monotonic() - begun_mono:.1f} s"
    say(f"added {rows} to {target.output} in {took}; {files}, {counted(result.size, 'byte')}")
    return 0
