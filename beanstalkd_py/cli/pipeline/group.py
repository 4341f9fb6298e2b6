"""`beanstalkd-py pipeline`: jobs of Spark over binlogs and history stores."""

from __future__ import annotations

import click

from beanstalkd_py.cli.command_group import CommandGroup

_HERE = "beanstalkd_py.cli.pipeline"
_COMMANDS = {
    "Commands": {
        "package": f"{_HERE}.package:package",
        "report": f"{_HERE}.report:report",
        "run": f"{_HERE}.run:run",
        "sql": f"{_HERE}.sql:sql",
    }
}


@click.group(
    cls=CommandGroup, sections=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
def pipeline() -> None:
    """Analyse binlogs and history stores with Spark.

    It runs on this machine or on a cluster. Needs PySpark (pip install 'beanstalkd_py[spark]') and
    Java 17. An input is a folder of binlogs, also of several workers, a binlog file, a history
    store, or a glob of them, on any file system that Spark reaches; its first wildcard stands for
    the host. All is only read, and may belong to servers that run.

    \b
    Examples:
      beanstalkd-py pipeline run tube-metrics \\
          --input /var/lib/beanstalkd --window '1 hour'
      beanstalkd-py pipeline run timelines \\
          --input '/srv/*/binlog' --output /srv/tables/timelines
      beanstalkd-py pipeline sql --input /var/lib/beanstalkd \\
          'select count(*) from timelines'

    \b
    Exit statuses: 0  all is well
                   1  something is damaged or wrong in the data, or Spark failed
                   2  a mistake: no such path or column, or no Java, for example
    """
