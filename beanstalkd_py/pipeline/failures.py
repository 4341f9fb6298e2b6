"""What has gone wrong when Spark fails: one of our errors with one line, out of its many.

An error of a task comes as the text of a traceback within a text of Java, and one of the driver's
Python as an exception with Java's causes behind it. Must not know who shows the line.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from beanstalkd_py import errors
from beanstalkd_py.errors import BeanstalkdError, PipelineError, PipelineUsageError

_OURS = re.compile(r"^(?:\w+: )*beanstalkd_py\.errors\.(?P<name>\w+): (?P<text>.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^(?P<name>[A-Za-z_][\w.]*(?:Error|Exception)): (?P<text>.+)$", re.MULTILINE)
_CONDITION = re.compile(r"^\[(?P<name>[A-Z0-9_.]+)\] ")
_OF_DATA = re.compile(
    r"\[[A-Z0-9_.]+\] (?P<text>(?:(?!SQLSTATE: ).)+) SQLSTATE: (?:21|22|42)\w{3}\b", re.DOTALL
)
"""A query that cannot be answered with this data, by SQL's classes: 1/0, text that is no number."""
_STATE = re.compile(r"\s*SQLSTATE: \w+")
_NO_MODULE = "No module named 'beanstalkd_py"
_MEMORY = "java.lang.OutOfMemoryError"


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Raises errors of this package in place of those of Spark."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise meant(error) from error


def meant(error: Exception) -> BeanstalkdError:
    """The error that is behind one of PySpark or Py4J."""
    text = _whole_text(error)
    found = list(_OURS.finditer(text))
    if found:
        kind = getattr(errors, found[-1]["name"], None)
        if kind in (errors.MalformedError, errors.DataLossError, PipelineUsageError):
            made: BeanstalkdError = kind(found[-1]["text"])
            return made
        return PipelineError(found[-1]["text"])
    if _NO_MODULE in text:
        return PipelineUsageError(
            "the executors' Python has no beanstalkd_py; give spark-submit the file that"
            " 'beanstalkd-py pipeline package' makes: --py-files FILE"
        )
    if _MEMORY in text:
        return PipelineError(
            "Spark's memory is not enough; give more, such as --conf spark.driver.memory=6g"
        )
    if _is_mistake(error):
        return PipelineUsageError(_first_line(_text_of(error)))
    of_data = list(_OF_DATA.finditer(text))
    if of_data:
        return PipelineUsageError(_first_line(of_data[-1]["text"]))
    return PipelineError(f"Spark has failed: {_reason(error, text)}")


def _is_mistake(error: Exception) -> bool:
    """Whether other words of the user would have gone well."""
    from pyspark.errors import (
        AnalysisException,
        IllegalArgumentException,
        ParseException,
        PySparkTypeError,
        PySparkValueError,
    )

    mistakes = (AnalysisException, ParseException, IllegalArgumentException)
    return isinstance(error, (*mistakes, PySparkTypeError, PySparkValueError))


def _whole_text(error: Exception) -> str:
    parts = [_text_of(error)]
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while java is not None:
        parts.append(str(java.toString()))
        java = java.getCause()
    return "\n".join(parts)


def _text_of(error: Exception) -> str:
    """An error of Java is text only as long as Java is there."""
    try:
        return str(error)
    except Exception:
        return f"{type(error).__name__}: Java has ended"


def _reason(error: Exception, text: str) -> str:
    """Python's last words, or those of the innermost cause."""
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
    """Without what Spark has for programs. An error in SQL has its place behind the text."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    line = _STATE.sub("", _CONDITION.sub("", lines[0])) if lines else "it does not say why"
    line, _, place = line.partition("; line ")
    return line.rstrip(" .;") + (f" (line {place.rstrip(' .;')})" if place else "")
