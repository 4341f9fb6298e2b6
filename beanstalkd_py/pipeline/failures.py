"""Translates errors of Spark into errors of this package with a one-line message.

An error of a task is the text of a Python traceback inside the message of a Java exception. An
error of the driver is a Python exception with Java causes.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from beanstalkd_py import errors
from beanstalkd_py.errors import BeanstalkdError, PipelineError, PipelineUsageError

_OWN = re.compile(r"^(?:\w+: )*beanstalkd_py\.errors\.(?P<name>\w+): (?P<text>.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^(?P<name>[A-Za-z_][\w.]*(?:Error|Exception)): (?P<text>.+)$", re.MULTILINE)
_CONDITION = re.compile(r"^\[(?P<name>[A-Z0-9_.]+)\] ")
_OF_DATA = re.compile(
    r"\[[A-Z0-9_.]+\] (?P<text>(?:(?!SQLSTATE: ).)+) SQLSTATE: (?:21|22|42)\w{3}\b", re.DOTALL
)
"""Errors of a query and its data by their SQL class, such as a division by zero."""
_STATE = re.compile(r"\s*SQLSTATE: \w+")
_NO_MODULE = "No module named 'beanstalkd_py"
_OTHER_MODULE = re.compile(r"No module named '(\w+)")
_MEMORY = "java.lang.OutOfMemoryError"


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Raise errors of this package in place of those of Spark."""
    try:
        yield
    except spark_errors() as error:
        raise translate(error) from error


def spark_errors() -> tuple[type[Exception], ...]:
    """Return the errors that Spark raises; a client of Spark Connect has no Py4J."""
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    except ImportError:
        return (PySparkException,)
    return PySparkException, Py4JError


def own_error(text: str) -> BeanstalkdError | None:
    """Return the error about data or options in the text of Spark's error, if there is one."""
    matches = list(_OWN.finditer(text))
    kind = getattr(errors, matches[-1]["name"], None) if matches else None
    if kind in (errors.MalformedError, errors.DataLossError, PipelineUsageError):
        error: BeanstalkdError = kind(matches[-1]["text"])
        return error
    return None


def translate(error: Exception) -> BeanstalkdError:
    text = _whole_text(error)
    if (own := own_error(text)) is not None:
        return own
    if matches := list(_OWN.finditer(text)):
        return PipelineError(matches[-1]["text"])
    if _NO_MODULE in text:
        return PipelineUsageError(
            "the executors' Python has no beanstalkd_py; on this machine leave PYSPARK_PYTHON out;"
            " on a cluster make a package by 'beanstalkd-py pipeline package --output FILE' and"
            " give spark-submit --py-files FILE"
        )
    if missing := _OTHER_MODULE.search(text):
        return PipelineUsageError(
            f"the executors' Python has no module {missing[1]}; set PYSPARK_PYTHON to one that has"
            " it, or leave it out on this machine"
        )
    if _MEMORY in text:
        return PipelineError(
            "Spark is out of memory; give it more, such as --conf spark.driver.memory=6g"
        )
    if _is_usage_error(error):
        return PipelineUsageError(_first_line(_text_of(error)))
    if matches := list(_OF_DATA.finditer(text)):
        return PipelineUsageError(_first_line(matches[-1]["text"]))
    return PipelineError(f"Spark failed: {_reason(error, text)}")


def _is_usage_error(error: Exception) -> bool:
    from pyspark.errors import (
        AnalysisException,
        IllegalArgumentException,
        ParseException,
        PySparkTypeError,
        PySparkValueError,
    )

    kinds = (AnalysisException, ParseException, IllegalArgumentException)
    return isinstance(error, (*kinds, PySparkTypeError, PySparkValueError))


def _whole_text(error: Exception) -> str:
    parts = [_text_of(error)]
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while java is not None:
        parts.append(str(java.toString()))
        java = java.getCause()
    return "\n".join(parts)


def _text_of(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # a Java error needs Java for its text
        return f"{type(error).__name__}: Java has ended"


def _reason(error: Exception, text: str) -> str:
    """Return the message of the Python error, or of the innermost Java cause."""
    raised = list(_PYTHON.finditer(text))
    if raised and "Traceback (most recent call last)" in text:
        return f"{raised[-1]['name']}: {raised[-1]['text']}"
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if java is None:
        return _first_line(_text_of(error))
    while java.getCause() is not None:
        java = java.getCause()
    return _first_line(str(java.toString()))


def _first_line(text: str) -> str:
    """Return the first line without error class and SQL state, and the line of an SQL error."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    line = _STATE.sub("", _CONDITION.sub("", lines[0])) if lines else "it gives no reason"
    line, _, position = line.partition("; line ")
    return line.rstrip(" .;") + (f" (line {position.rstrip(' .;')})" if position else "")
