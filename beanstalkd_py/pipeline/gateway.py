"""The Java machine of Spark's driver: started so that what it prints stays off the terminal.

Java, Spark's start scripts and its logging write to stderr before any setting of Spark counts, and
the workers of Python do all the time. So stderr and stdout of that process are a file that has no
name; its end is looked at only when the machine does not start.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from beanstalkd_py.errors import PipelineError, PipelineUsageError

IS_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""In the environment: spark-submit has started the machine already."""
JAVA = "Java 17, such as the package openjdk-17-jre-headless"
_END = 64 << 10
_OLD_CLASSES = "UnsupportedClassVersionError"
_COMPLAINT = re.compile(r"(?:Error|Exception|Invalid|Unrecognized|Could not|Caused by)\b.*")


def launched(settings: Mapping[str, str], is_quiet: bool) -> Any:
    """A new machine with these settings. None: there is one that spark-submit has started.

    Raises PipelineUsageError if there is no Java that Spark can use, PipelineError if it does not
    start for another reason.
    """
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if IS_SUBMITTED in os.environ:
        return None
    _check_java()
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    launch: Any = launch_gateway
    if not is_quiet:
        return launch(conf)
    with tempfile.TemporaryFile() as said:
        try:
            return launch(conf, {"stdout": said, "stderr": said})
        except PySparkRuntimeError as error:
            raise _why(said) from error


def _check_java() -> None:
    """Raises PipelineUsageError."""
    home = os.environ.get("JAVA_HOME")
    if home:
        if not os.access(Path(home) / "bin" / "java", os.X_OK):
            raise PipelineUsageError(
                f"JAVA_HOME is {home}, which has no bin/java; set it to {JAVA}"
            )
    elif shutil.which("java") is None:
        raise PipelineUsageError(f"there is no Java, which Spark needs; install {JAVA}")


def _why(said: Any) -> PipelineError | PipelineUsageError:
    said.seek(max(0, said.seek(0, os.SEEK_END) - _END))
    text = said.read().decode(errors="replace")
    if _OLD_CLASSES in text:
        return PipelineUsageError(f"this Java is too old for Spark; install {JAVA}")
    complaint = _COMPLAINT.search(text)
    lines = text.split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "it does not say why")
    return PipelineError(f"Spark does not start: {complaint[0].strip() if complaint else last}")
