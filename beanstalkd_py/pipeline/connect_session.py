"""A session on a server of Spark Connect."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from beanstalkd_py.errors import PipelineError, PipelineUsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEME = "sc://"
PACKAGE = "beanstalkd-py.zip"
MISSING = "Spark Connect needs more packages; pip install 'pyspark[connect]' installs them"


@contextlib.contextmanager
def connect_session(url: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Connect to a server and send it the package. Raises PipelineUsageError, PipelineError."""
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.remote(url).getOrCreate()
    except ImportError as error:
        raise PipelineUsageError(f"{MISSING} ({error})") from error
    except PySparkException as error:
        raise PipelineError(f"cannot connect to {url}: {error}") from error
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        send_package(spark)
        yield spark
    finally:
        spark.stop()


def send_package(spark: SparkSession) -> None:
    """Make this package importable in the tasks of a session, and of no other one."""
    from beanstalkd_py.pipeline.package import write_package

    with tempfile.TemporaryDirectory(prefix="beanstalkd-py-") as scratch:
        package = Path(scratch) / PACKAGE
        write_package(package)
        spark.addArtifacts(str(package), pyfile=True)
