"""`pipeline sql`: a query over binlogs, history stores and the results of jobs."""

from __future__ import annotations

import time
from typing import Any

import click

from beanstalkd_py.cli.pipeline.output import Target, tell_damage, to_output
from beanstalkd_py.cli.pipeline.spark_options import INPUTS, MODE, on_spark, place_of


@click.command()
@INPUTS
@to_output
@MODE
@on_spark
@click.argument("text", metavar="QUERY")
def sql(text: str, inputs: tuple[str, ...], mode: str, **given: Any) -> int:
    """Answer QUERY, in Spark's SQL.

    \b
    Tables:
      entries         binlogs, a row for each entry
      messages        history stores, a row for each finished job
      queues, index_entries
                      what else is in a store
      timelines, tube_metrics, dead_letters, binlog_health, verify
                      the rows of 'pipeline run'

    Their columns: 'describe TABLE'. A body, and the properties of a message, are there if QUERY
    names the column (body, properties); * leaves them out otherwise. Of columns with the same name
    the second is NAME_2.

    \b
    Examples:
      beanstalkd-py pipeline sql -i /var/lib/beanstalkd \\
          'select tube, percentile(wait_s, 0.99) from timelines group by tube'
      beanstalkd-py pipeline sql -i /var/lib/history --json \\
          "select tube, decode(body, 'utf-8') from messages where tags='deleted'"
    """
    begun_mono = time.monotonic()
    place, target = place_of(given), Target.of(given)
    with place.running("sql") as running:
        from beanstalkd_py.pipeline.damage_count import DamageCount
        from beanstalkd_py.pipeline.inputs import sort_inputs
        from beanstalkd_py.pipeline.results import with_names_apart
        from beanstalkd_py.pipeline.views import make_views

        damage = DamageCount()
        make_views(running.spark, sort_inputs(running.spark, list(inputs)), text, mode, damage)
        rows = with_names_apart(running.spark.sql(text))
        target.write(running, rows, (), begun_mono)
        tell_damage(damage.places)
    return 0
