"""What all commands on Spark have: where it runs, a session of it, and how its errors are told."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.path_completion import complete_file
from beanstalkd_py.cli.pipeline.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
_OPTIONS = (
    click.option(
        "--master",
        metavar="URL",
        help="Where Spark runs: local[N], spark://HOST:PORT, yarn, k8s://...  [default: local[*]]",
    ),
    click.option(
        "--conf",
        metavar="NAME=VALUE",
        multiple=True,
        help="A setting of Spark, such as spark.driver.memory=6g; may be repeated.",
    ),
    click.option("--verbose", is_flag=True, help="Let Spark say all that it has to say."),
)

INPUTS = click.option(
    *("-i", "--input", "inputs"),
    metavar="PATH",
    shell_complete=complete_file,
    multiple=True,
    required=True,
    help="Binlogs or a history store, or a glob of them; may be repeated.",
)
MODE = click.option(
    "--mode",
    type=click.Choice(MODES, case_sensitive=False),
    default=MODES[0],
    show_default=True,
    help="What is done about damaged places: said and left out, left out, or the end of the run.",
)


@dataclass(frozen=True, slots=True)
class Running:
    """A session; `hide` takes the progress off the terminal before rows are written there."""

    spark: SparkSession
    hide: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Place:
    """What the options of Spark say."""

    master: str | None
    conf: tuple[str, ...]
    verbose: bool

    @contextlib.contextmanager
    def running(self, label: str) -> Iterator[Running]:
        """A session, with progress shown. Raises ToolUsageError, PipelineError and others."""
        from beanstalkd_py.pipeline.session import SparkOptions, spark_session

        with mistakes_told(), Progress(label) as progress:
            asked = SparkOptions.of(self.master, self.conf, not self.verbose)
            with spark_session(asked) as spark, failures_told():
                progress.follow(spark.sparkContext)
                try:
                    yield Running(spark, progress.hide)
                finally:
                    progress.hide()


def on_spark(command: Any) -> Any:
    """Adds the options; `place_of` takes them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def place_of(given: dict[str, Any]) -> Place:
    """Takes the options of Spark out of all."""
    return Place(given.pop("master"), given.pop("conf"), given.pop("verbose"))


@contextlib.contextmanager
def mistakes_told() -> Iterator[None]:
    """A mistake leaves with 2; what the system refuses is one line."""
    try:
        yield
    except errors.PipelineUsageError as error:
        raise errors.ToolUsageError(str(error)) from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise errors.PipelineError(f"cannot read or write: {where}{error.strerror}") from error


@contextlib.contextmanager
def failures_told() -> Iterator[None]:
    """What Spark says, in one line."""
    from beanstalkd_py.pipeline.failures import translated_errors

    with translated_errors():
        yield


def moment(wall_ns: int | None) -> datetime.datetime | None:
    """A time of the command line, in UTC."""
    if wall_ns is None:
        return None
    return _EPOCH + datetime.timedelta(microseconds=wall_ns // 1000)
