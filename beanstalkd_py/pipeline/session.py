"""The Spark session of the jobs, local or on a cluster.

Settings of the user override the defaults in this module.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.class_archive import MISSING_PYSPARK, option_of_java
from beanstalkd_py.pipeline.connect_session import PACKAGE, SCHEME, connect_session
from beanstalkd_py.pipeline.gateway import IS_SUBMITTED, launch_jvm
from beanstalkd_py.pipeline.sources.paths import expand, local
from beanstalkd_py.pipeline.sources.task_python import PYTHON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
NAME = "beanstalkd-py"
PY_FILES = "spark.submit.pyFiles"

QUERY_SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    # When a part of a query has no rows, this rule removes others, and observations of faults.
    "spark.sql.adaptive.optimizer.excludedRules": (
        "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
    ),
}
COMMON_SETTINGS: Mapping[str, str] = {**QUERY_SETTINGS, "spark.ui.showConsoleProgress": "false"}
LOOPBACK = "127.0.0.1"
"""In place of the name of this machine, which may not resolve."""
LOCAL_SETTINGS: Mapping[str, str] = {
    # Tasks run in the driver: the default of 1 GiB is too little to sort millions of entries.
    "spark.driver.memory": "3g",
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.ui.enabled": "false",
}
PARTITIONS_PER_CORE = 16
"""Shuffle partitions, each sorted in memory; Spark coalesces small ones."""
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
SMALL_BYTES = 64 << 20
"""For smaller inputs, compiling the code takes longer than running it."""
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Only the first compiler of Java: the second one takes half of the CPU time of a short run."""
LAUNCHER_OPTIONS = "SPARK_LAUNCHER_OPTS"
"""Environment variable: options of the JVM that only makes the command line of the driver."""


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """How to run Spark. Without `master`, Spark's configuration names it, or it is this machine.

    `is_small` tunes a session on this machine to small inputs.
    """

    master: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    is_quiet: bool = True
    is_small: bool = False

    @classmethod
    def of(
        cls, master: str | None, pairs: Sequence[str], is_quiet: bool, inputs: Sequence[str] = ()
    ) -> SparkOptions:
        """Parse settings `name=value`; `inputs` are for tuning. Raises PipelineUsageError."""
        settings = {}
        for pair in pairs:
            name, equals, value = pair.partition("=")
            if not equals or not name.startswith("spark."):
                raise PipelineUsageError(
                    f"{pair!r} is not a setting of Spark; give one such as spark.driver.memory=4g"
                )
            settings[name.strip()] = value
        return cls(master, settings, is_quiet, are_small(inputs))


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def are_small(inputs: Sequence[str]) -> bool:
    """Whether all inputs are on this machine and have at most SMALL_BYTES together."""
    left = SMALL_BYTES
    for pattern in inputs:
        plain = local(pattern)
        try:
            paths = [] if plain is None else expand(plain)
        except PipelineUsageError:
            paths = []  # the read of the inputs reports it
        if not paths:
            return False
        for path in paths:
            for size in _sizes(Path(path)):
                left -= size
                if left < 0:
                    return False
    return bool(inputs)


def _sizes(path: Path) -> Iterator[int]:
    """Yield the sizes of files on the disk: those of a store have holes."""
    below = path.rglob("*") if path.is_dir() else [path]
    for file in below:
        with contextlib.suppress(OSError):  # removed meanwhile
            status = file.stat()
            if stat.S_ISREG(status.st_mode):
                yield min(status.st_size, status.st_blocks * 512)


@contextlib.contextmanager
def spark_session(options: SparkOptions) -> Iterator[SparkSession]:
    """Start a session and stop it at the end of the block.

    Sends the package to the executors of a cluster unless spark.submit.pyFiles is set. Raises
    PipelineUsageError, PipelineError.
    """
    if options.master is not None and options.master.startswith(SCHEME):
        with connect_session(options.master, {**QUERY_SETTINGS, **options.settings}) as spark:
            yield spark
        return
    try:
        import pyarrow  # noqa: F401
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise PipelineUsageError(f"{MISSING_PYSPARK} ({error})") from error
    if options.is_quiet:
        _silence()
    _choose_python(options)
    if _is_on_this_machine(options):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    # Without it, Python workers would import modules from the current folder.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    with tempfile.TemporaryDirectory(prefix="beanstalkd-py-") as scratch:
        os.environ.setdefault(LAUNCHER_OPTIONS, QUICK_JAVA)
        first_settings = {} if IS_SUBMITTED in os.environ else settings_of(options, {})
        gateway = launch_jvm(first_settings, options.is_quiet)
        SparkContext._ensure_initialized(gateway=gateway)
        conf = SparkConf()
        for name, value in settings_of(options, dict(conf.getAll())).items():
            conf.set(name, value)
        conf.setIfMissing("spark.sql.warehouse.dir", f"file://{scratch}/warehouse")
        conf.setIfMissing("spark.app.name", NAME)
        with _keeping_interrupt_handler():
            context = SparkContext(conf=conf)
        try:
            if not is_local(conf.get("spark.master", LOCAL)) and not conf.get(PY_FILES, ""):
                from beanstalkd_py.pipeline.package import write_package

                package = Path(scratch) / PACKAGE
                write_package(package)
                context.addPyFile(str(package))
            yield SparkSession(context)
        except BaseException as error:
            if not _is_interrupted(error):
                _stop(context, gateway)
                raise
            # A call of Java was interrupted, so the connection cannot be used again.
            if gateway is not None:
                gateway.proc.terminate()
                gateway.proc.wait()
            raise KeyboardInterrupt from error
        else:
            _stop(context, gateway)


def _is_interrupted(error: BaseException | None) -> bool:
    """Return whether Ctrl-C led to an error. PySpark calls Java again meanwhile, which may fail."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _choose_python(options: SparkOptions) -> None:
    """Run tasks with this Python unless PYSPARK_PYTHON names another.

    Raises PipelineUsageError if that is no program.
    """
    python = os.environ.setdefault(PYTHON, sys.executable)
    if _is_on_this_machine(options) and shutil.which(python) is None:
        raise PipelineUsageError(
            f"{PYTHON} is {python}, which is no program; leave it out, or name a Python that has"
            " beanstalkd_py"
        )


def _is_on_this_machine(options: SparkOptions) -> bool:
    is_submitted = IS_SUBMITTED in os.environ
    return not is_submitted and is_local(settings_of(options, {})["spark.master"])


def settings_of(options: SparkOptions, submitted: Mapping[str, str]) -> dict[str, str]:
    """Merge the defaults, the settings of spark-submit and those of the user."""
    explicit = {**submitted, **options.settings}
    if options.master is not None:
        explicit["spark.master"] = options.master
    master = explicit.setdefault("spark.master", LOCAL)
    defaults = dict(COMMON_SETTINGS)
    if is_local(master):
        partitions = _cores(master) * (1 if options.is_small else PARTITIONS_PER_CORE)
        defaults |= {**LOCAL_SETTINGS, "spark.sql.shuffle.partitions": str(partitions)}
        java = [QUICK_JAVA if options.is_small else "", option_of_java()]
        defaults |= {JAVA_OPTIONS: " ".join(filter(None, java))} if any(java) else {}
    if options.is_quiet:
        defaults["spark.log.level"] = "ERROR"
    return {**defaults, **explicit}


def _cores(master: str) -> int:
    count = master.removeprefix("local").strip("[]").partition(",")[0]
    if count == "*":
        return os.cpu_count() or 1
    return int(count) if count.isdecimal() else 1


@contextlib.contextmanager
def _keeping_interrupt_handler() -> Iterator[None]:
    """Remove PySpark's handler of Ctrl-C, which calls Java during a call of Java."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _silence() -> None:
    from pyspark.logger import PySparkLogger

    # Py4J logs an interrupted query to the root logger.
    logging.getLogger().addHandler(logging.NullHandler())
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    warnings.filterwarnings("ignore", module=r"pyspark\b")


def _stop(context: Any, gateway: Any) -> None:
    from pyspark import SparkContext

    accumulators = getattr(context, "_accumulatorServer", None)
    context._accumulatorServer = None  # PySpark would wait up to a second for its end
    context.stop()
    if accumulators is not None:
        accumulators.handle_error = lambda *_: None  # the JVM may close its connection first
        threading.Thread(target=accumulators.shutdown, daemon=True).start()
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None
