"""Binlogs and history stores as tables in Spark (extra `spark`).

    from beanstalkd_py import pipeline

    pipeline.register(spark)
    spark.read.format("beanstalkd_binlog").load("/var/lib/beanstalkd")
    pipeline.read_binlog(spark, "/srv/*/binlog", columns=["host", "id", "tube", "state"])

Spark is imported on first use of one of these functions, the server never.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from beanstalkd_py.lazy_imports import lazy_names

if TYPE_CHECKING:
    from beanstalkd_py.pipeline.data_sources import register
    from beanstalkd_py.pipeline.frames import mark_copies, read_binlog, read_store
    from beanstalkd_py.pipeline.sink.take import take_jobs

__all__ = ["mark_copies", "read_binlog", "read_store", "register", "take_jobs"]

_MODULES = {
    "data_sources": ["register"],
    "frames": ["mark_copies", "read_binlog", "read_store"],
    "sink.take": ["take_jobs"],
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
