"""`pipeline package`: what spark-submit sends to a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from beanstalkd_py.cli.output import say
from beanstalkd_py.cli.pipeline.spark_options import mistakes_told
from beanstalkd_py.plural import counted


@click.command()
@click.option(
    *("-o", "--output"),
    metavar="FILE",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The package, such as beanstalkd-py.zip.",
)
def package(output: Path) -> int:
    """Make a package of this program for spark-submit.

    It has all that tasks need of it, the decoder in C included, so that the machines of a cluster
    need no more than PySpark does: Python, pyarrow and pandas, on the same kind of machine as this
    one. 'pipeline run --master URL' makes and sends it by itself.

    \b
    Examples:
      beanstalkd-py pipeline package --output beanstalkd-py.zip
      spark-submit --py-files beanstalkd-py.zip my_job.py
    """
    from beanstalkd_py.pipeline.package import write_package

    if output.suffix != ".zip":
        raise click.BadParameter(
            f"{output} has no name that Spark takes; let it end in .zip",
            param_hint="--output",
        )
    with mistakes_told():
        size = write_package(output)
    say(f"wrote {output}; {counted(size, 'byte')}")
    return 0
