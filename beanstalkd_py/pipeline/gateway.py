"""Starts the JVM of Spark's driver without its output on the terminal.

Java, Spark's scripts and its logging write to stderr before Spark's settings apply, and so do the
Python workers. Therefore stdout and stderr of the JVM go to an unnamed file, which is read only if
the JVM does not start.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from beanstalkd_py.errors import PipelineError, PipelineUsageError

IS_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Environment variable: spark-submit has started the JVM already."""
JAVA = "Java 17, such as the package openjdk-17-jre-headless"
_TAIL_BYTES = 64 << 10
_OLD_CLASSES = "UnsupportedClassVersionError"
_UNKNOWN_HOST = "UnknownHostException"
_ERROR_LINE = re.compile(r"(?:Error|Exception|Invalid|Unrecognized|Could not)\b.*")
_CAUSE = re.compile(r"^Caused by: (.*)", re.MULTILINE)


def launch_jvm(settings: Mapping[str, str], is_quiet: bool) -> Any:
    """Start a JVM and return its gateway; return None if spark-submit has started one.

    Raises PipelineUsageError without a Java that Spark supports, and PipelineError.
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
    with tempfile.TemporaryFile() as output:
        try:
            return launch(conf, {"stdout": output, "stderr": output})
        except PySparkRuntimeError as error:
            raise _start_error(output) from error


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home:
        if not os.access(Path(home) / "bin" / "java", os.X_OK):
            raise PipelineUsageError(
                f"JAVA_HOME is {home}, which has no bin/java; set it to {JAVA}"
            )
    elif shutil.which("java") is None:
        raise PipelineUsageError(f"cannot find Java, which Spark needs; install {JAVA}")


def _start_error(output: Any) -> PipelineError | PipelineUsageError:
    output.seek(max(0, output.seek(0, os.SEEK_END) - _TAIL_BYTES))
    text = output.read().decode(errors="replace")
    if _OLD_CLASSES in text:
        return PipelineUsageError(f"this Java is too old for Spark; install {JAVA}")
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    causes, error = _CAUSE.findall(text), _ERROR_LINE.search(text)
    reasons = [*causes[-1:], *([error[0]] if error else []), *lines[-1:], "it gives no reason"]
    reason = reasons[0].strip()
    # Spark looks this name up if the environment has keys of AWS.
    if _UNKNOWN_HOST in reason and socket.gethostname() in reason:
        return PipelineUsageError(
            f"cannot start Spark: the name of this machine, {socket.gethostname()}, has no address;"
            " add it to /etc/hosts"
        )
    return PipelineError(f"cannot start Spark: {reason}")
