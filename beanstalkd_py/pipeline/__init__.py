"""Binlogs and history stores as tables of Spark (extra `spark`).

    from beanstalkd_py import pipeline

    pipeline.register(spark)
    spark.read.format("beanstalkd_binlog").load("/var/lib/beanstalkd")
    pipeline.read_binlog(spark, "/srv/*/binlog", columns=["host", "id", "tube", "state"])

Nothing of Spark is imported before it is asked for, and nothing of the server ever.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beanstalkd_py.pipeline.binlogs.duplicates import mark_copies
    from beanstalkd_py.pipeline.binlogs.frame import read_binlog
    from beanstalkd_py.pipeline.registration import register
    from beanstalkd_py.pipeline.sink.counter import put_counts
    from beanstalkd_py.pipeline.sink.take import take_jobs
    from beanstalkd_py.pipeline.stores.frame import read_store

__all__ = ["mark_copies", "put_counts", "read_binlog", "read_store", "register", "take_jobs"]

_WHERE = {
    "mark_copies": "beanstalkd_py.pipeline.binlogs.duplicates",
    "put_counts": "beanstalkd_py.pipeline.sink.counter",
    "read_store": "beanstalkd_py.pipeline.stores.frame",
    "read_binlog": "beanstalkd_py.pipeline.binlogs.frame",
    "register": "beanstalkd_py.pipeline.registration",
    "take_jobs": "beanstalkd_py.pipeline.sink.take",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)
