"""`pipeline prepare`: an archive of classes for quick starts."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import click

from beanstalkd_py.cli.output import notice
from beanstalkd_py.cli.pipeline.spark_options import SparkRunner, usage_errors
from beanstalkd_py.errors import PipelineUsageError


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
    from beanstalkd_py.pipeline.class_archive import archive_path

    with usage_errors(), tempfile.TemporaryDirectory(prefix="beanstalkd-py-") as scratch:
        archive = archive_path()
        new = Path(scratch, "classes.jsa")
        _write_classes(new, Path(scratch))
        if not new.exists():
            raise PipelineUsageError(
                "Java wrote no archive; use one that can (Java 17 of HotSpot), and no folder with"
                " files as SPARK_CONF_DIR"
            )
        archive.parent.mkdir(parents=True, exist_ok=True)
        beside = archive.with_suffix(f".{os.getpid()}")
        try:
            shutil.move(new, beside)
            beside.replace(archive)
        finally:
            beside.unlink(missing_ok=True)
    notice(f"wrote {archive}; {archive.stat().st_size / 1e6:.0f} MB")
    return 0


def _write_classes(archive: Path, scratch: Path) -> None:
    """Write the archive of the classes that a report about one job takes."""
    from beanstalkd_py.history.store import ARCHIVER_SIZES, Message, Options, Store
    from beanstalkd_py.pipeline.report.page import write_report
    from beanstalkd_py.pipeline.session import JAVA_OPTIONS, QUICK_JAVA

    history = scratch / "history"
    properties = {"UNIQ_KEY": "1-0-1-1", "TAGS": "deleted"}
    with Store.open(history, Options(sizes=ARCHIVER_SIZES)) as store:
        store.append([Message(topic="mails", body=b"", properties=properties)], durable=True)
    java = f'{QUICK_JAVA} "-XX:ArchiveClassesAtExit={archive}" -Xlog:disable'
    spark = SparkRunner("local[2]", (f"{JAVA_OPTIONS}={java}",), verbose=False)
    with spark.running("prepare", [str(history)]) as running:
        write_report(running.spark, [str(history)], scratch / "report.html")
