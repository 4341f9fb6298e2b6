"""`pipeline prepare`: an archive of classes for quick starts."""

from __future__ import annotations

import click

from beanstalkd_py.cli.output import notice
from beanstalkd_py.cli.pipeline.spark_options import usage_errors


@click.command()
def prepare() -> int:
    """Let later commands start Spark faster on this machine.

    Writes an archive of the classes of Spark to ~/.cache/beanstalkd-py (or below $XDG_CACHE_HOME).
    It takes a minute and 170 MB. Later commands of this user use it, except with --master of a
    cluster. Run this again after an update of Java or Spark; until then the archive is ignored.

    \b
    Example:
      beanstalkd-py pipeline prepare
    """
    from beanstalkd_py.pipeline.class_archive import write

    notice("running Spark for about a minute")
    with usage_errors():
        archive = write()
    notice(f"wrote {archive}; {archive.stat().st_size / 1e6:.0f} MB")
    return 0
