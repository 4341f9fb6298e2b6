"""`beanstalkd-py pipeline`: the group of commands."""

from __future__ import annotations

import click

from beanstalkd_py.cli.command_group import CommandGroup
from beanstalkd_py.cli.connection_options import CONTEXT

_PACKAGE = "beanstalkd_py.cli.pipeline"
_COMMANDS = {
    "Commands": {
        "package": f"{_PACKAGE}.package:package",
        "prepare": f"{_PACKAGE}.prepare:prepare",
        "report": f"{_PACKAGE}.report:report",
        "run": f"{_PACKAGE}.run:run",
        "ship": f"{_PACKAGE}.ship:ship",
        "sql": f"{_PACKAGE}.sql:sql",
    }
}


@click.group(cls=CommandGroup, sections=_COMMANDS, context_settings=CONTEXT)
def pipeline() -> None:
    """Analyse binlogs and history stores with Spark.

    Runs on this machine or on a cluster. Requires PySpark (pip install 'beanstalkd_py[spark]') and
    Java 17. An input is a binlog folder, a binlog file, a history store, or a glob of them, on any
    file system that Spark supports; the first wildcard of a glob stands for the host. Inputs are
    only read, and may be in use by running servers.

    \b
    Examples:
      beanstalkd-py pipeline run tube-metrics \\
          --input /var/lib/beanstalkd --window '1 hour'
      beanstalkd-py pipeline run timelines \\
          --input '/srv/*/binlog' --output /srv/tables/timelines
      beanstalkd-py pipeline sql --input /var/lib/beanstalkd \\
          'select count(*) from timelines'

    \b
    Exit statuses: 0  success; the result has all data
                   1  damaged places were skipped and reported, verify found
                      violations, or Spark failed
                   2  usage error, such as a missing path, column or Java

    After damage, rows or page are written all the same, without the damaged places. --mode
    dropmalformed accepts damage (status 0, no report), and --mode failfast writes nothing.
    """
