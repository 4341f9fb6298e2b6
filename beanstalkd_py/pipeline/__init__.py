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
    from beanstalkd_py.pipeline.binlog_frame import read_binlog
    from beanstalkd_py.pipeline.copies import mark_copies
    from beanstalkd_py.pipeline.sources import register
    from beanstalkd_py.pipeline.store_frame import read_store
    from beanstalkd_py.pipeline.tubes_counter import put_counts
    from beanstalkd_py.pipeline.tubes_taking import take_jobs

__all__ = ["mark_copies", "put_counts", "read_binlog", "read_store", "register", "take_jobs"]

_WHERE = {
    "mark_copies": "beanstalkd_py.pipeline.copies",
    "put_counts": "beanstalkd_py.pipeline.tubes_counter",
    "read_store": "beanstalkd_py.pipeline.store_frame",
    "read_binlog": "beanstalkd_py.pipeline.binlog_frame",
    "register": "beanstalkd_py.pipeline.sources",
    "take_jobs": "beanstalkd_py.pipeline.tubes_taking",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)
