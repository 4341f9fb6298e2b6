"""The Python that runs the tasks of a session."""

from __future__ import annotations

import os
import sys

PYTHON = "PYSPARK_PYTHON"


def use_this_python() -> None:
    """Run the tasks of a session on this machine with this Python, unless PYTHON names another.

    Spark's default is the first python3 of the path, which may lack this package and pyarrow. No
    effect on Spark Connect, whose server chooses.
    """
    try:
        from pyspark import SparkContext
    except ImportError:
        return  # the package pyspark-client, which has only Spark Connect
    context = SparkContext._active_spark_context
    if context is None or PYTHON in os.environ:
        return
    if str(context.master).startswith("local"):
        context.pythonExec = sys.executable
