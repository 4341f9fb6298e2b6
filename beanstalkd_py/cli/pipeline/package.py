"""`pipeline package`: the zip file for spark-submit."""

from __future__ import annotations

from pathlib import Path

import click

from beanstalkd_py.cli.options import option
from beanstalkd_py.cli.output import notice
from beanstalkd_py.cli.pipeline.spark_options import usage_errors
from beanstalkd_py.plural import counted


@click.command()
@option(
    "-o --output",
    "File of the package, such as beanstalkd-py.zip.",
    click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    required=True,
)
def package(output: Path) -> int:
    """Write a package of this program for spark-submit.

    The package has everything that tasks need, including the decoder in C. The machines of the
    cluster need only what PySpark needs: Python, pyarrow and pandas, on the same platform as this
    one, and deltalake for the job export. 'pipeline run --master URL' creates and sends the package
    automatically.

    \b
    Examples:
      beanstalkd-py pipeline package --output beanstalkd-py.zip
      spark-submit --py-files beanstalkd-py.zip my_job.py
    """
    from beanstalkd_py.pipeline.package import write_package

    if output.suffix != ".zip":
        raise click.BadParameter(
            f"Spark requires a file name that ends in .zip, not {output}", param_hint="--output"
        )
    with usage_errors():
        size = write_package(output)
    notice(f"wrote {output}; {counted(size, 'byte')}")
    return 0
