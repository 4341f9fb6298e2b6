"""Options of all commands that run Spark, and a session with these options."""

from __future__ import annotations

import contextlib
import datetime
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.argument_types import EPOCH, TimeType
from beanstalkd_py.cli.options import complete_file, in_order, option
from beanstalkd_py.cli.progress import Progress
from beanstalkd_py.pipeline.sources.read_modes import Mode

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

PROGRESS_INTERVAL_S = 15.0
POLL_INTERVAL_S = 0.25

_OPTIONS = in_order(
    option(
        "--master",
        "Spark master: local[N], spark://HOST:PORT, yarn, k8s://..., or sc://HOST:PORT of Spark"
        " Connect.  [default: local[*]]",
        metavar="URL",
    ),
    option(
        "--conf",
        "Spark property, such as spark.driver.memory=6g; may be repeated.",
        metavar="NAME=VALUE",
        multiple=True,
    ),
    option("--verbose", "Show the log of Spark.", is_flag=True),
)

INPUTS = option(
    "-i --input inputs",
    "Binlogs or a history store, or a glob of them; may be repeated.",
    metavar="PATH",
    shell_complete=complete_file,
    multiple=True,
    required=True,
)
MODE = option(
    "--mode",
    "Damaged places: report and skip, skip, or fail.",
    click.Choice([mode.value for mode in Mode], case_sensitive=False),
    default=Mode.PERMISSIVE.value,
)


class UtcTime(TimeType):
    def parse(self, text: str) -> datetime.datetime:
        return EPOCH + datetime.timedelta(microseconds=super().parse(text) // 1000)


@dataclass(frozen=True, slots=True)
class Running:
    """A session. `hide_progress` clears the terminal before rows are written."""

    spark: SparkSession
    hide_progress: Callable[[], None]
    begun_mono: float

    @property
    def took(self) -> str:
        return f"{time.monotonic() - self.begun_mono:.1f} s"


@dataclass(frozen=True, slots=True)
class SparkRunner:
    master: str | None
    conf: tuple[str, ...]
    verbose: bool

    @contextlib.contextmanager
    def running(self, label: str, inputs: Sequence[str]) -> Iterator[Running]:
        """Start a session and show its progress. Raises ToolUsageError, PipelineError."""
        from beanstalkd_py.pipeline.failures import translated_errors
        from beanstalkd_py.pipeline.session import SparkOptions, spark_session
        from beanstalkd_py.pipeline.sources.connect import is_connect

        begun_mono = time.monotonic()
        with usage_errors(), Progress(label, PROGRESS_INTERVAL_S) as progress:
            options = SparkOptions.of(self.master, self.conf, not self.verbose, inputs)
            with spark_session(options) as spark, translated_errors():
                context = None if is_connect(spark) else spark.sparkContext
                watcher = _StageWatcher(context, progress)
                watcher.start()
                try:
                    yield Running(spark, watcher.stop, begun_mono)
                finally:
                    watcher.stop()


class _StageWatcher(threading.Thread):
    """Shows the finished tasks of the running stages; Spark does not know later stages yet."""

    def __init__(self, context: SparkContext | None, progress: Progress) -> None:
        super().__init__(daemon=True)
        self._context = context
        self._progress = progress
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()
        self.join()
        self._progress.hide()

    def run(self) -> None:
        while not self._stopped.wait(POLL_INTERVAL_S):
            try:
                done, total = self._tasks()
            except Exception:
                return  # Spark is stopping; the main thread reports the error
            detail = f"{done} of {total} tasks of this stage done" if total else ""
            self._progress.update(done, total or None, detail)

    def _tasks(self) -> tuple[int, int]:
        if self._context is None:  # Spark Connect
            return 0, 0
        tracker = self._context.statusTracker()
        infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        stages = [info for info in infos if info is not None]
        return sum(info.numCompletedTasks for info in stages), sum(info.numTasks for info in stages)


def spark_options(function: Callable[..., Any]) -> Any:
    """Add the options of Spark; the command gets `spark`."""

    @wraps(function)
    def command(
        *args: Any, master: str | None, conf: tuple[str, ...], verbose: bool, **arguments: Any
    ) -> Any:
        return function(*args, spark=SparkRunner(master, conf, verbose), **arguments)

    return _OPTIONS(command)


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Convert PipelineUsageError to ToolUsageError (status 2), and OSError to PipelineError."""
    try:
        yield
    except errors.PipelineUsageError as error:
        raise errors.ToolUsageError(str(error)) from error
    except OSError as error:
        path = f"{error.filename}: " if error.filename else ""
        raise errors.PipelineError(
            f"cannot read or write: {path}{error.strerror or error}"
        ) from error
