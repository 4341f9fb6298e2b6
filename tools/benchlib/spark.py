"""Shared by the measurements with Spark: a binlog written by the C core, a session, a run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from beanstalkd_py.core.clocks import read_clocks
from beanstalkd_py.core.core import Core, CoreConfig
from beanstalkd_py.core.shared_memory import new_shared

FILE_BYTES = 10 << 20


def write_binlog(folder: Path, batches: Iterable[list[bytes]], history: bool = False) -> None:
    """Execute batches of commands."""
    shared, now = new_shared(), read_clocks()
    core = Core(CoreConfig(str(folder), FILE_BYTES, -1, history=history), shared, now)
    core.recover(now)
    client = core.open(now)
    for commands in batches:
        now = read_clocks()
        core.feed(client, b"".join(commands), now)
        core.commit(now)
        while core.output(client):
            pass
        for _ in core.events():
            pass
    core.stop()
    core.close()


def session(settings: Mapping[str, str]) -> SparkSession:
    """Start a session with two threads."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("bench")
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    for name, value in {**quiet, **settings}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def seconds_of(frame: DataFrame) -> float:
    """Compute all rows and return the duration."""
    start = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start
