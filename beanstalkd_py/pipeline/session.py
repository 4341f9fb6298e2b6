"""The session of Spark in which the jobs run: on this machine, or on a cluster by the same code.

What is set here, is set because Spark's own default does not fit; whoever wants it otherwise says
so by a setting of Spark, which always wins.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.gateway import IS_SUBMITTED, launched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
NAME = "beanstalkd-py"
PACKAGES = "spark.submit.pyFiles"
MISSING = "the pipeline needs PySpark; pip install 'beanstalkd_py[spark]' installs it"

ANYWHERE: Mapping[str, str] = {
    # All times of binlogs and stores are moments, shown in UTC.
    "spark.sql.session.timeZone": "UTC",
    # The command shows its own progress.
    "spark.ui.showConsoleProgress": "false",
}
HERE: Mapping[str, str] = {
    # The tasks run in this process, whose 1 GiB is little for sorting millions of entries. Together
    # with the workers of Python it is less than 6 GB.
    "spark.driver.memory": "3g",
    # Nobody else has to reach it, and the machine's name may lead nowhere.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
PARTS_A_CORE = 16
"""Of a shuffle: each is sorted in memory, and Spark joins what is small."""


@dataclass(frozen=True, slots=True)
class Asked:
    """How Spark is to run. `settings` are Spark's own, by their names; None: on this machine."""

    master: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    is_quiet: bool = True

    @classmethod
    def of(cls, master: str | None, pairs: Sequence[str], is_quiet: bool) -> Asked:
        """Of settings as `name=value`. Raises PipelineUsageError."""
        settings = {}
        for pair in pairs:
            name, equals, value = pair.partition("=")
            if not equals or not name.startswith("spark."):
                raise PipelineUsageError(
                    f"setting {pair!r} is none of Spark's; give one such as spark.driver.memory=4g"
                )
            settings[name.strip()] = value
        return cls(master, settings, is_quiet)


def is_local(master: str) -> bool:
    """Whether tasks run in the driver's process."""
    return master == "local" or master.startswith("local[")


@contextlib.contextmanager
def spark_session(asked: Asked) -> Iterator[SparkSession]:
    """A session as it was asked for, stopped in the end.

    On a cluster the package goes to the executors, unless a setting says what does. Raises
    PipelineUsageError, PipelineError.
    """
    try:
        import pyarrow  # noqa: F401
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise PipelineUsageError(f"{MISSING} ({error})") from error
    if asked.is_quiet:
        _silence()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Its workers take modules from the folder where the command was given otherwise.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    with tempfile.TemporaryDirectory(prefix="beanstalkd-py-") as scratch:
        gateway = launched(_first_settings(asked), asked.is_quiet)
        SparkContext._ensure_initialized(gateway=gateway)
        conf = SparkConf()
        for name, value in settings_of(asked, dict(conf.getAll())).items():
            conf.set(name, value)
        conf.setIfMissing("spark.sql.warehouse.dir", f"file://{scratch}/warehouse")
        conf.setIfMissing("spark.app.name", NAME)
        with _handlers_kept():
            context = SparkContext(conf=conf)
        try:
            if not is_local(conf.get("spark.master", LOCAL)) and not conf.get(PACKAGES, ""):
                context.addPyFile(str(_packed(Path(scratch))))
            yield SparkSession(context)
        except KeyboardInterrupt:
            # The talk to Java was broken off in the middle, so nothing more can be said to it.
            if gateway is not None:
                gateway.proc.terminate()
                gateway.proc.wait()
            raise
        except BaseException:
            _stop(context, gateway)
            raise
        else:
            _stop(context, gateway)


def settings_of(asked: Asked, submitted: Mapping[str, str]) -> dict[str, str]:
    """All that is set; `submitted` (by spark-submit) and what was asked for count most."""
    given = {**submitted, **asked.settings}
    if asked.master is not None:
        given["spark.master"] = asked.master
    given.setdefault("spark.master", LOCAL)
    usual = dict(ANYWHERE)
    if is_local(given["spark.master"]):
        parts = PARTS_A_CORE * _cores(given["spark.master"])
        usual |= {**HERE, "spark.sql.shuffle.partitions": str(parts)}
    if asked.is_quiet:
        usual["spark.log.level"] = "ERROR"
    return {**usual, **given}


def _cores(master: str) -> int:
    count = master.removeprefix("local").strip("[]").partition(",")[0]
    if count == "*":
        return os.cpu_count() or 1
    return int(count) if count.isdecimal() else 1


def _first_settings(asked: Asked) -> dict[str, str]:
    """What Java has to know before there is a session, such as its memory."""
    return {} if IS_SUBMITTED in os.environ else settings_of(asked, {})


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
    """PySpark's handler of Ctrl-C talks to Java amid a talk to Java; stopping Spark ends all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _silence() -> None:
    """What PySpark and Py4J print from within this process; errors come as exceptions anyway."""
    from pyspark.logger import PySparkLogger

    # Py4J takes the root logger, to tell of a query that Ctrl-C has ended.
    logging.getLogger().addHandler(logging.NullHandler())
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    warnings.filterwarnings("ignore", module=r"pyspark\b")


def _packed(folder: Path) -> Path:
    from beanstalkd_py.pipeline.package import write_package

    path = folder / "beanstalkd-py.zip"
    write_package(path)
    return path


def _stop(context: Any, gateway: Any) -> None:
    """Ends the machine, too, if it is ours: nothing of it is left when the command has ended."""
    from pyspark import SparkContext

    context.stop()
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None
