"""An archive of the classes of Spark, from which Java starts it faster.

Java writes it (JEP 350), and ignores an archive of another Java or Spark. Java neither writes nor
uses one if the folder of Spark's configuration, which is in the class path, has files.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import tempfile
from pathlib import Path

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.failures import translated_errors


def place() -> Path:
    """Return where the archive of the installed PySpark is, or would be.

    Raises importlib.metadata.PackageNotFoundError without PySpark, RuntimeError without a home.
    """
    caches = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    version = importlib.metadata.version("pyspark")
    return Path(caches, "beanstalkd-py", f"spark-{version}.jsa")


def option_of_java() -> str:
    """Return the option that uses the archive; "" if there is none."""
    try:
        archive = place()
    except (importlib.metadata.PackageNotFoundError, RuntimeError):
        return ""
    # Java would report an archive of another version at each start.
    return f'"-XX:SharedArchiveFile={archive}" -Xlog:cds=off' if archive.exists() else ""


def write() -> Path:
    """Write the archive of the classes that a small report takes, and return its path.

    Takes about a minute on one core. Raises PipelineUsageError, PipelineError, OSError.
    """
    # The session imports this module.
    from beanstalkd_py.pipeline.report.page import write_report
    from beanstalkd_py.pipeline.session import JAVA_OPTIONS, QUICK_JAVA, SparkOptions, spark_session

    with tempfile.TemporaryDirectory(prefix="beanstalkd-py-") as scratch:
        new, history = Path(scratch, "classes.jsa"), Path(scratch, "history")
        _write_history(history)
        java = {JAVA_OPTIONS: f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={new} -Xlog:disable"}
        options = SparkOptions("local[2]", java, is_small=True)
        with spark_session(options) as spark, translated_errors():
            write_report(spark, [str(history)], Path(scratch, "report.html"))
        if not new.exists():
            raise PipelineUsageError(
                "Java wrote no archive; use one that can (Java 17 of HotSpot), and no folder with"
                " files as SPARK_CONF_DIR"
            )
        archive = place()
        archive.parent.mkdir(parents=True, exist_ok=True)
        beside = archive.with_suffix(f".{os.getpid()}")
        try:
            shutil.move(new, beside)
            beside.replace(archive)
        finally:
            beside.unlink(missing_ok=True)
    return archive


def _write_history(folder: Path) -> None:
    from beanstalkd_py.history.store import ARCHIVER_SIZES, Message, Options, Store

    properties = {"UNIQ_KEY": "1-0-1-1", "TAGS": "deleted"}
    message = Message(topic="mails", body=b"", properties=properties)
    with Store.open(folder, Options(sizes=ARCHIVER_SIZES)) as store:
        store.append([message], durable=True)
