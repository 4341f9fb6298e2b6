"""`pipeline sql`: a query on binlogs, history stores and the results of jobs."""

from __future__ import annotations

import click

from beanstalkd_py.cli.pipeline.output import Target, damage_status, output_options
from beanstalkd_py.cli.pipeline.spark_options import INPUTS, MODE, SparkRunner, spark_options


@click.command()
@INPUTS
@output_options
@MODE
@spark_options
@click.argument("text", metavar="QUERY")
def sql(text: str, inputs: tuple[str, ...], mode: str, target: Target, spark: SparkRunner) -> int:
    """Run QUERY in Spark SQL.

    \b
    Tables:
      entries         binlogs, one row per entry
      messages        history stores, one row per finished job
      queues, index_entries
                      consume queues and index of a store
      timelines, tube_metrics, dead_letters, binlog_health, verify
                      rows of the jobs of 'pipeline run'

    'describe TABLE' lists the columns. The columns body and properties must be named; * omits them.
    The second of two columns with the same name becomes NAME_2.

    \b
    Examples:
      beanstalkd-py pipeline sql -i /var/lib/beanstalkd \\
          'select tube, percentile(wait_s, 0.99) from timelines group by tube'
      beanstalkd-py pipeline sql -i /var/lib/history --json \\
          "select tube, decode(body, 'utf-8') from messages where tags='deleted'"
    """
    with spark.running("sql", inputs) as running:
        from beanstalkd_py.pipeline.damage_count import DamageCount
        from beanstalkd_py.pipeline.inputs import sort_inputs
        from beanstalkd_py.pipeline.results import with_unique_names
        from beanstalkd_py.pipeline.views import make_views

        damage = DamageCount()
        make_views(running.spark, sort_inputs(running.spark, list(inputs)), text, mode, damage)
        rows = with_unique_names(running.spark.sql(text))
        target.write(running, rows)
        return damage_status(*damage.faults(rows))
